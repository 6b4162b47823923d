"""A decoder's shape from a hub folder's config.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agentmem.engine.config import DecoderConfig, Rope
from agentmem.errors import DataError

_ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "gemma3_text": "gemma3", "gemma3": "gemma3"}
HYBRIDS = ("mamba2", "granitemoehybrid", "bamba", "falcon_h1", "nemotron_h")
"""What `models.hybrid` runs; the engine does not serve them."""
_PLAIN_ROPE = ("default", "none", None)


def config_from_folder(folder: Path) -> DecoderConfig:
    """Read config.json; DataError for an architecture or a feature that is not known."""
    try:
        raw: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {folder / 'config.json'}: {error}") from error
    kind = raw.get("model_type")
    if kind in HYBRIDS:
        served = ", ".join(_ARCHITECTURES)
        raise DataError(f"{folder} is a {kind!r} hybrid: not served yet; served are {served}")
    if kind not in _ARCHITECTURES:
        raise DataError(f"{folder} is a {kind!r} model; known are {', '.join(_ARCHITECTURES)}")
    raw = raw.get("text_config", raw)
    try:
        return _config(_ARCHITECTURES[kind], raw)
    except KeyError as error:
        raise DataError(f"{folder / 'config.json'} lacks {error.args[0]!r}") from error


def _config(arch: str, raw: dict[str, Any]) -> DecoderConfig:
    gemma = arch == "gemma3"
    layers, width = int(raw["num_hidden_layers"]), int(raw["hidden_size"])
    heads = int(raw["num_attention_heads"])
    head_dim = int(raw.get("head_dim") or width // heads)
    sliding = _sliding(arch, raw, layers)
    scalar = raw.get("query_pre_attn_scalar") if gemma else None
    return DecoderConfig(
        arch=arch,
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=int(raw.get("num_key_value_heads") or heads),
        head_dim=head_dim,
        ffn_width=int(raw["intermediate_size"]),
        vocab_size=int(raw["vocab_size"]),
        window=int(raw["max_position_embeddings"]),
        norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope=rope_of(raw, "full_attention", "rope_theta", 1_000_000.0 if gemma else 10_000.0),
        local_rope=rope_of(raw, "sliding_attention", "rope_local_base_freq", 10_000.0)
        if gemma
        else None,
        sliding_window=int(raw["sliding_window"]) if any(sliding) else None,
        sliding=sliding if any(sliding) else (),
        activation=_activation(raw),
        qk_norm=gemma,
        post_norms=gemma,
        embed_scale=width**0.5 if gemma else 1.0,
        query_scale=float(scalar) ** -0.5 if scalar else None,
    )


def _sliding(arch: str, raw: dict[str, Any], layers: int) -> tuple[bool, ...]:
    if not raw.get("sliding_window") or (arch == "qwen2" and not raw.get("use_sliding_window")):
        return ()
    kinds = raw.get("layer_types")
    if kinds:
        return tuple(kind == "sliding_attention" for kind in kinds)
    if arch == "gemma3":
        every = int(raw.get("sliding_window_pattern") or 6)
        return tuple((layer + 1) % every != 0 for layer in range(layers))
    if arch == "qwen2":
        return tuple(layer >= int(raw.get("max_window_layers", layers)) for layer in range(layers))
    return ()


def rope_of(raw: dict[str, Any], layer_type: str, key: str, theta: float) -> Rope:
    """Positions of one kind of layer, in either layout of config.json (before and after 2025)."""
    given = raw.get("rope_parameters") or {}
    if layer_type in given:
        given = given[layer_type]
    elif not given and layer_type == "full_attention":
        given = raw.get("rope_scaling") or {}
    theta = float(given.get("rope_theta") or raw.get(key) or theta)
    kind = given.get("rope_type", given.get("type"))
    if kind in _PLAIN_ROPE:
        return Rope(theta)
    if kind == "linear":
        return Rope(theta, linear_factor=float(given["factor"]))
    if kind == "llama3":
        low, high = float(given["low_freq_factor"]), float(given["high_freq_factor"])
        original = int(given["original_max_position_embeddings"])
        return Rope(theta, llama3=(float(given["factor"]), low, high, original))
    raise DataError(f"position scaling {kind!r} is not supported")


def _activation(raw: dict[str, Any]) -> Any:
    name = raw.get("hidden_activation") or raw.get("hidden_act") or "silu"
    known = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
    if name not in known:
        raise DataError(f"activation {name!r} is not supported")
    return known[name]
