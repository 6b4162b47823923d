"""Writes a tiny hub folder as a GGUF file, the way the usual converter does."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file

_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_PLAIN_NORMS = {"post_attention_layernorm": "ffn_norm"}
_GEMMA_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def save_gguf(folder: Path, path: Path) -> Path:
    """Weights and sizes only (no tokenizer), everything in float32."""
    config = json.loads((folder / "config.json").read_text())
    arch = {"gemma3_text": "gemma3"}.get(config["model_type"], config["model_type"])
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    rope = config["rope_parameters"]
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    if config.get("head_dim"):
        writer.add_key_length(config["head_dim"])
    if arch == "gemma3":
        writer.add_sliding_window(config["sliding_window"])
    for name, tensor in load_file(folder / "model.safetensors").items():
        writer.add_tensor(_rename(name, arch), _convert(name, tensor, arch, config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _rename(name: str, arch: str) -> str:
    if name in _TOP:
        return _TOP[name]
    _, _, layer, rest = name.split(".", 3)
    inner, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{_inner(arch)[inner]}.{kind}"


def hub_name(name: str, arch: str) -> str:
    """The other way round: a hub folder's name of a GGUF tensor."""
    for hub, stored in _TOP.items():
        if stored == name:
            return hub
    _, layer, inner, kind = name.split(".")
    (known,) = (hub for hub, stored in _inner(arch).items() if stored == inner)
    return f"model.layers.{layer}.{known}.{kind}"


def _inner(arch: str) -> dict[str, str]:
    return _NAMES | (_GEMMA_NORMS if arch == "gemma3" else _PLAIN_NORMS)


def _convert(name: str, tensor: np.ndarray, arch: str, config: dict) -> np.ndarray:
    tensor = tensor.astype(np.float32)
    if arch == "gemma3" and name.endswith("norm.weight"):
        return tensor + 1
    if arch == "llama" and ("q_proj" in name or "k_proj" in name):
        heads = config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
        rows = tensor.reshape(heads, 2, -1, *tensor.shape[1:])
        return np.ascontiguousarray(rows.swapaxes(1, 2).reshape(tensor.shape))
    return tensor
