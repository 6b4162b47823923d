"""Tiny models of every family, with random weights, and what transformers says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    BambaConfig,
    FalconH1Config,
    GraniteMoeHybridConfig,
    Mamba2Config,
    NemotronHConfig,
    PretrainedConfig,
)

VOCAB = 256
_ENDS: dict[str, Any] = {
    "vocab_size": VOCAB,
    "bos_token_id": 0,
    "eos_token_id": None,
    "pad_token_id": None,
}
_SIZES: dict[str, Any] = _ENDS | {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
_MAMBA: dict[str, Any] = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 16,
    "mamba_chunk_size": 16,
}
_GRANITE: dict[str, Any] = (
    _SIZES
    | _MAMBA
    | {
        "num_hidden_layers": 3,
        "layer_types": ["mamba", "attention", "mamba"],
        "embedding_multiplier": 3.0,
        "logits_scaling": 3.0,
        "residual_multiplier": 0.6,
        "attention_multiplier": 0.0625,
    }
)
_NEMOTRON: dict[str, Any] = _SIZES | {
    "head_dim": 16,
    "ssm_state_size": 16,
    "mamba_num_heads": 8,
    "mamba_head_dim": 16,
    "n_groups": 2,
    "chunk_size": 16,
    "n_routed_experts": 4,
    "moe_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 32,
}

TOYS: dict[str, PretrainedConfig] = {
    "mamba2": Mamba2Config(
        **_ENDS,
        hidden_size=64,
        state_size=16,
        num_hidden_layers=3,
        num_heads=8,
        head_dim=16,
        n_groups=2,
        chunk_size=16,
        tie_word_embeddings=True,
    ),
    "mamba2_biased": Mamba2Config(
        **_ENDS,
        hidden_size=48,
        state_size=16,
        num_hidden_layers=2,
        num_heads=12,
        head_dim=8,
        n_groups=1,
        conv_kernel=3,
        chunk_size=16,
        use_bias=True,
        time_step_limit=(0.01, 0.5),
        tie_word_embeddings=False,
    ),
    "granite_dense": GraniteMoeHybridConfig(
        **_GRANITE,
        shared_intermediate_size=128,
        num_local_experts=0,
        num_experts_per_tok=0,
        tie_word_embeddings=True,
    ),
    "granite_experts": GraniteMoeHybridConfig(
        **_GRANITE | {"intermediate_size": 32},
        shared_intermediate_size=64,
        num_local_experts=4,
        num_experts_per_tok=2,
        position_embedding_type="rope",
        mamba_n_groups=2,
        attention_bias=True,
        mamba_proj_bias=True,
        mamba_conv_bias=False,
    ),
    "bamba": BambaConfig(
        **_SIZES, **_MAMBA, num_hidden_layers=3, attn_layer_indices=[1], mamba_n_groups=2
    ),
    "falcon": FalconH1Config(
        **_SIZES,
        **_MAMBA | {"mamba_n_heads": 6},
        num_hidden_layers=2,
        head_dim=16,
        mamba_d_ssm=96,
        embedding_multiplier=5.0,
        lm_head_multiplier=0.4,
        mlp_multipliers=[0.8, 0.6],
        key_multiplier=0.3,
        attention_in_multiplier=1.3,
        attention_out_multiplier=0.9,
        ssm_multipliers=[0.4, 0.9, 0.7, 0.8, 1.1],
        ssm_in_multiplier=1.2,
        ssm_out_multiplier=0.7,
    ),
    "falcon_normed": FalconH1Config(
        **_SIZES,
        **_MAMBA | {"mamba_n_heads": 6},
        num_hidden_layers=2,
        head_dim=32,
        mamba_d_ssm=96,
        mamba_n_groups=2,
        mamba_rms_norm=True,
        mamba_proj_bias=True,
        projectors_bias=True,
        mlp_bias=True,
        ssm_multipliers=[0.4, 0.9, 0.7, 0.8, 1.1],
    ),
    "falcon_gate_first": FalconH1Config(
        **_SIZES,
        **_MAMBA | {"mamba_n_heads": 6},
        num_hidden_layers=1,
        mamba_d_ssm=96,
        mamba_rms_norm=True,
        mamba_norm_before_gate=False,
    ),
    "nemotron": NemotronHConfig(
        **_NEMOTRON, layers_block_type=["mamba", "mlp", "attention", "mamba", "moe"]
    ),
    "nemotron_latent": NemotronHConfig(
        **_NEMOTRON | {"n_routed_experts": 8},
        layers_block_type=["moe", "mamba", "attention", "moe", "mamba", "mlp"],
        moe_latent_size=24,
        mlp_bias=True,
        use_bias=True,
        num_experts_per_tok=3,
        n_group=4,
        topk_group=2,
        routed_scaling_factor=2.5,
        time_step_min=0.05,
    ),
}


def save_toy(config: PretrainedConfig, folder: Path) -> Any:
    """A model with weights of a size that makes the logits differ, saved: gives the model."""
    torch.manual_seed(11)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if (parameter.dim() == 1 and not name.endswith("bias")) or name.endswith("dt_bias"):
                parameter.add_(0.3 * torch.randn_like(parameter))
            else:
                parameter.copy_(0.15 * torch.randn_like(parameter))
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(0.3 * torch.randn_like(buffer))
    model.save_pretrained(folder)
    return model


def prompt(length: int, seed: int = 3) -> Tensor:
    """Random tokens [length]."""
    return torch.randint(0, VOCAB, (length,), generator=torch.Generator().manual_seed(seed))


def worst(ours: Tensor, theirs: Tensor) -> float:
    """Largest difference, as a part of the largest value."""
    return float((ours.double() - theirs.double()).abs().max() / theirs.double().abs().max())


BENCHMARK_LIKE = GraniteMoeHybridConfig(
    **_ENDS | {"vocab_size": 2048},
    hidden_size=256,
    intermediate_size=512,
    shared_intermediate_size=512,
    num_hidden_layers=6,
    num_attention_heads=8,
    num_key_value_heads=4,
    layer_types=["mamba", "mamba", "attention", "mamba", "attention", "mamba"],
    num_local_experts=0,
    num_experts_per_tok=0,
    position_embedding_type="nope",
    embedding_multiplier=3.0,
    logits_scaling=3.0,
    residual_multiplier=0.5,
    attention_multiplier=0.03125,
    mamba_n_heads=16,
    mamba_d_head=32,
    mamba_d_state=128,
    mamba_chunk_size=256,
    max_position_embeddings=2048,
    tie_word_embeddings=True,
)
"""Proportions of a small real model: wide states, long chunks, one group."""
