"""Logits of the fetched models against transformers on the same dequantised weights.

Reading the files with transformers takes most of a minute, so its models are filled from our own
dequantisation; that one has its own oracle in tests/modelfiles/test_dequant.py.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    PretrainedConfig,
    Qwen2Config,
)

from agentmem.engine.loader import load_decoder
from agentmem.engine.models.alone import Alone
from agentmem.modelfiles.gguf import GGUF
from agentmem.modelfiles.tokenizer import load_tokenizer
from tests.engine.core.gguf_writer import hub_name

POSITIONS = 64
NEAR_TIE = 1e-3
PROMPTS = [
    "The user's dog is called Rex. He was born in Berlin and likes long walks near the river. ",
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nHello!",
    '{"facts": ["Anna moved to Tokyo in 2021", "Her allergy is peanuts"], "n": 2}\n',
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) + ",
    "Question: Who wrote the letter? Answer: Nobody knows. Question: When was it sent? ",
    "On Monday, 3 March 2025 at 17:45, train ICE 706 left platform 9 with 214 passengers. ",
    "Größe, naïve, Ελληνικά, русский, 日本語 — a line of many scripts and signs ½ €. ",
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen ",
    "    \n\n\t indented   text\n\n- item one\n- item two\n- item three\n",
    "In the beginning the universe was created. This has made a lot of people very angry. ",
]


def _config(file: GGUF) -> PretrainedConfig:
    sizes = {
        "vocab_size": file.tensors["token_embd.weight"].shape[0],
        "hidden_size": file.value("embedding_length"),
        "intermediate_size": file.value("feed_forward_length"),
        "num_hidden_layers": file.value("block_count"),
        "num_attention_heads": file.value("attention.head_count"),
        "num_key_value_heads": file.value("attention.head_count_kv"),
        "max_position_embeddings": file.value("context_length"),
        "rms_norm_eps": file.value("attention.layer_norm_rms_epsilon"),
        "tie_word_embeddings": "output.weight" not in file.tensors,
    }
    theta = file.value("rope.freq_base")
    if file.arch == "gemma3":
        return Gemma3TextConfig(
            **sizes, head_dim=256, sliding_window=512, query_pre_attn_scalar=256
        )
    return {"llama": LlamaConfig, "qwen2": Qwen2Config}[file.arch](**sizes, rope_theta=theta)


def _theirs(file: GGUF) -> torch.nn.Module:
    """The model of transformers, filled from the file, rows in the order it expects."""
    state = {}
    for name in file.tensors:
        tensor = file.tensor(name)
        if file.arch == "gemma3" and name.endswith("norm.weight"):
            tensor = tensor - 1
        if file.arch == "llama" and name.split(".")[-2] in ("attn_q", "attn_k"):
            half = file.value("rope.dimension_count") // 2
            rows = tensor.reshape(-1, half, 2, tensor.shape[1])
            tensor = np.ascontiguousarray(rows.swapaxes(1, 2).reshape(tensor.shape))
        state[hub_name(name, file.arch)] = torch.from_numpy(tensor)
    model = AutoModelForCausalLM.from_config(_config(file), dtype=torch.float32).eval()
    missing, surplus = model.load_state_dict(state, strict=False, assign=True)
    assert not surplus
    assert set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    return model


@pytest.mark.parametrize(
    "name",
    [
        "smollm2-135m",
        pytest.param("gemma3-270m", marks=pytest.mark.slow),
        pytest.param("qwen2.5-coder-0.5b", marks=pytest.mark.slow),
    ],
)
def test_ten_prompts_give_the_logits_of_transformers(fetched, name: str) -> None:
    path = fetched(name)
    theirs = _theirs(GGUF.open(path))
    ours, tokenizer = load_decoder(path, "fp32"), load_tokenizer(path)
    largest, near_ties = 0.0, 0
    with torch.inference_mode():
        for text in PROMPTS:
            ids = torch.tensor((tokenizer.encode(text) * POSITIONS)[:POSITIONS])
            expected = theirs(ids[None]).logits[0]
            found = Alone(ours, POSITIONS).run(ids)
            largest = max(largest, float((found - expected).abs().max()))
            best = expected.topk(2).values
            tie = best[:, 0] - best[:, 1] < NEAR_TIE
            near_ties += int(tie.sum())
            assert (found.argmax(-1) == expected.argmax(-1))[~tie].all()
    print(f"{name}: largest difference {largest:.2e}, near-ties {near_ties} of {10 * POSITIONS}")
    assert largest < 1e-3
    assert near_ties < 10
