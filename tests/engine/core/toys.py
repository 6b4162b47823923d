"""Configurations of tiny models that exercise what the real ones have."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    PretrainedConfig,
    Qwen2Config,
)

_SIZES = {
    "vocab_size": 259,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 256,
    "eos_token_id": 258,
    "pad_token_id": None,
}

TOYS: dict[str, PretrainedConfig] = {
    "llama": LlamaConfig(**_SIZES, rope_theta=10_000.0),
    "llama_untied": LlamaConfig(
        **_SIZES | {"num_key_value_heads": 1}, tie_word_embeddings=False, head_dim=32
    ),
    "llama3_rope": LlamaConfig(
        **_SIZES,
        rope_scaling={
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ),
    "linear_rope": LlamaConfig(**_SIZES, rope_scaling={"rope_type": "linear", "factor": 4.0}),
    "qwen2": Qwen2Config(**_SIZES, tie_word_embeddings=True),
    "qwen2_sliding": Qwen2Config(
        **_SIZES, use_sliding_window=True, sliding_window=8, max_window_layers=1
    ),
    "gemma3": Gemma3TextConfig(
        **_SIZES | {"num_hidden_layers": 7, "num_key_value_heads": 1},
        head_dim=32,
        sliding_window=8,
        query_pre_attn_scalar=24,
    ),
    # a GGUF file cannot say how queries are scaled: by the head's size, then
    "gemma3_usual": Gemma3TextConfig(
        **_SIZES, head_dim=32, sliding_window=8, query_pre_attn_scalar=32
    ),
}


def save_toy(config: PretrainedConfig, folder: Path) -> None:
    """Random weights of a size that makes the logits differ, norms and biases included."""
    torch.manual_seed(11)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.3 if parameter.dim() == 1 else 0.12
            shift = parameter if name.endswith("norm.weight") else 0.0
            parameter.copy_(shift + spread * torch.randn_like(parameter))
    model.save_pretrained(folder)
