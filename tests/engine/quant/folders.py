"""Small random llama folders stored in fp8, each with the numbers that it stands for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from tests.modelfiles.naive import byte_signs

E4M3 = torch.float8_e4m3fn
WIDTH, FFN, HEADS, KV_HEADS, LAYERS, VOCABULARY = 64, 96, 4, 2, 2, 259
LINEARS = {
    "self_attn.q_proj": (WIDTH, WIDTH),
    "self_attn.k_proj": (WIDTH // 2, WIDTH),
    "self_attn.v_proj": (WIDTH // 2, WIDTH),
    "self_attn.o_proj": (WIDTH, WIDTH),
    "mlp.gate_proj": (FFN, WIDTH),
    "mlp.up_proj": (FFN, WIDTH),
    "mlp.down_proj": (WIDTH, FFN),
}
CONFIG = {
    "model_type": "llama",
    "hidden_size": WIDTH,
    "intermediate_size": FFN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}


@dataclass(frozen=True)
class Stored:
    """A folder, the float32 matrix of each linear by hub name, and the static scales."""

    folder: Path
    values: dict[str, Tensor]
    input_scales: dict[str, float]


def native(static: bool = True, tile: tuple[int, int] | None = None) -> dict[str, Any]:
    """`quantization_config` of the native layout."""
    given: dict[str, Any] = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    if tile:
        return given | {"weight_block_size": list(tile)}
    return given | ({"activation_scheme": "static"} if static else {})


def compressed(strategy: str, static: bool) -> dict[str, Any]:
    """`quantization_config` of compressed-tensors W8A8."""
    number = {"num_bits": 8, "type": "float", "symmetric": True}
    inputs = {"strategy": "tensor", "dynamic": False}
    if not static:
        inputs = {"strategy": "token", "dynamic": True}
    weights = number | {"strategy": strategy, "dynamic": False}
    if strategy == "block":
        weights["block_structure"] = [32, 32]
    group = {"targets": ["Linear"], "weights": weights, "input_activations": number | inputs}
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }


def save(
    folder: Path,
    config: dict[str, Any],
    scales: str,
    static: bool,
    extra: dict[str, Tensor] | None = None,
) -> Stored:
    """Write a folder; `scales` is tensor, channel or the side of a square tile in figures."""
    torch.manual_seed(3)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | {"quantization_config": config}))
    tensors = {"model.embed_tokens.weight": torch.randn(VOCABULARY, WIDTH).bfloat16()}
    tensors["model.norm.weight"] = torch.ones(WIDTH).bfloat16()
    values, inputs = {}, {}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{at}{norm}.weight"] = (1 + 0.1 * torch.randn(WIDTH)).bfloat16()
        for i, (name, (rows, columns)) in enumerate(LINEARS.items()):
            module = at + name
            codes = (torch.randn(rows, columns) * 60).clamp(-448, 448).to(E4M3)
            scale, full, key = _scales(scales, rows, columns)
            tensors[module + ".weight"] = codes
            tensors[module + key] = scale
            values[module] = codes.float() * full
            if static:
                inputs[module] = 0.01 * (1 + layer + (i * 5) % 7)
                tensors[module + ".input_scale"] = torch.tensor(inputs[module])
    save_file(tensors | (extra or {}), folder / "model.safetensors")
    return Stored(folder, values, inputs)


def save_plain(folder: Path, norms: torch.dtype = torch.bfloat16) -> None:
    """A folder in bf16; the norms' weights in another dtype where asked."""
    torch.manual_seed(4)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    tensors = {"model.embed_tokens.weight": torch.randn(VOCABULARY, WIDTH).bfloat16()}
    tensors["model.norm.weight"] = torch.ones(WIDTH).bfloat16()
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{at}{norm}.weight"] = (1 + 0.1 * torch.randn(WIDTH)).to(norms)
        for name, (rows, columns) in LINEARS.items():
            tensors[f"{at}{name}.weight"] = (0.15 * torch.randn(rows, columns)).bfloat16()
    save_file(tensors, folder / "model.safetensors")


def save_tokenizer(folder: Path) -> None:
    """One token a byte, and three of control."""
    backend = Tokenizer(models.BPE(vocab={s: i for i, s in enumerate(byte_signs())}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<s>", "<|im_start|>", "<|im_end|>"])
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>"}))


def _scales(kind: str, rows: int, columns: int) -> tuple[Tensor, Tensor, str]:
    """The stored scale, the scale of every value, and the name it is stored under."""
    if kind == "tensor":
        one = 0.001 + 0.001 * torch.rand(())
        return one, one.expand(rows, columns), ".weight_scale"
    if kind == "channel":
        column = 0.001 + 0.001 * torch.rand(rows, 1)
        return column, column.expand(rows, columns), ".weight_scale"
    side = int(kind)
    tiles = 0.001 + 0.001 * torch.rand(-(-rows // side), -(-columns // side))
    full = torch.empty(rows, columns)
    for row in range(rows):
        for column in range(columns):
            full[row, column] = tiles[row // side, column // side]
    return tiles, full, ".weight_scale_inv"
