"""The shape of a model that mixes Mamba-2 with attention, from a hub folder's config.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from agentmem.engine.config import Rope
from agentmem.engine.config_hub import rope_of
from agentmem.errors import DataError

Mixing = Literal["mamba", "attention", "both", "none"]
Feeding = Literal["dense", "experts", "none"]
_UNKNOWN = {
    "mamba": "Mamba-1 layers",
    "falcon_mamba": "Mamba-1 layers",
    "jamba": "Mamba-1 layers",
    "zamba": "Mamba-1 layers",
    "zamba2": "attention blocks shared between layers",
    "lfm2": "short convolutions",
    "qwen3_next": "gated delta networks",
}


@dataclass(frozen=True, slots=True)
class MambaShape:
    """One mixer's sizes; every head has `head_dim` channels and `state` numbers for each."""

    heads: int
    head_dim: int
    state: int
    groups: int
    kernel: int
    norm_eps: float
    dt_limits: tuple[float, float]
    gate_first: bool = True
    """Gate, then norm; else the other way round."""
    normed: bool = True
    """Without a norm, the gate is all there is behind the scan."""
    conv_bias: bool = True

    @property
    def inner(self) -> int:
        """Channels that the heads share out."""
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        """What the convolution sees: x, B and C side by side."""
        return self.inner + 2 * self.groups * self.state


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """`rotated` leading elements of each head turn with the position; none without `rope`."""

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    rope: Rope | None = None
    rotated: int = 0


@dataclass(frozen=True, slots=True)
class ExpertShape:
    """`softmax`: over the chosen. `sigmoid`: each by itself, chosen within the best groups."""

    count: int
    chosen: int
    scoring: Literal["softmax", "sigmoid"] = "softmax"
    groups: int = 1
    best_groups: int = 1
    normalised: bool = True
    scaling: float = 1.0


@dataclass(frozen=True, slots=True)
class Layer:
    """A mixer and a feed-forward, each with its norm and its residual; either may be missing."""

    mixing: Mixing
    feeding: Feeding


@dataclass(frozen=True, slots=True)
class Scales:
    """What rows are multiplied with on their way; all one in most models."""

    embedding: float = 1.0
    logits: float = 1.0
    mamba_in: float = 1.0
    mamba_parts: tuple[float, ...] = ()
    """On the input projection's gate, x, B, C and time steps."""
    mamba_out: float = 1.0
    attention_in: float = 1.0
    attention_out: float = 1.0
    ffn_gate: float = 1.0
    ffn_out: float = 1.0


@dataclass(frozen=True, slots=True)
class HybridConfig:
    """Sizes in elements; window in tokens, None where positions have no end."""

    arch: str
    width: int
    vocab_size: int
    window: int | None
    norm_eps: float
    layers: tuple[Layer, ...]
    mamba: MambaShape
    attention: AttentionShape | None = None
    experts: ExpertShape | None = None
    activation: Literal["silu", "relu2"] = "silu"
    """silu is of gated feed-forwards, relu2 of those without a gate."""
    scales: Scales = Scales()


def hybrid_from_folder(folder: Path) -> HybridConfig:
    """Read config.json; DataError for an architecture or a feature that is not known."""
    file = folder / "config.json"
    try:
        raw: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {file}: {error}") from error
    kind = str(raw.get("model_type"))
    if kind not in _READERS:
        why = f" with {_UNKNOWN[kind]}" if kind in _UNKNOWN else ""
        known = ", ".join(_READERS)
        raise DataError(f"{folder} is a {kind!r} model{why}; hybrids that run are {known}")
    try:
        return _READERS[kind](raw)
    except KeyError as error:
        raise DataError(f"{file} lacks {error.args[0]!r}") from error
    except (TypeError, ValueError) as error:
        raise DataError(f"{file} holds a value that makes no sense: {error}") from error


def _mamba2(raw: dict[str, Any]) -> HybridConfig:
    _expect(raw, "hidden_act", "silu")
    eps = float(raw.get("layer_norm_epsilon", 1e-5))
    return HybridConfig(
        arch="mamba2",
        width=int(raw["hidden_size"]),
        vocab_size=int(raw["vocab_size"]),
        window=None,
        norm_eps=eps,
        layers=(Layer("mamba", "none"),) * int(raw["num_hidden_layers"]),
        mamba=MambaShape(
            heads=int(raw["num_heads"]),
            head_dim=int(raw["head_dim"]),
            state=int(raw["state_size"]),
            groups=int(raw["n_groups"]),
            kernel=int(raw["conv_kernel"]),
            norm_eps=eps,
            dt_limits=_limits(raw.get("time_step_limit")),
            conv_bias=bool(raw.get("use_conv_bias", True)),
        ),
    )


def _bamba(raw: dict[str, Any]) -> HybridConfig:
    where = set(raw.get("attn_layer_indices") or ())
    kinds: list[Mixing] = ["attention" if i in where else "mamba" for i in _layers(raw)]
    return HybridConfig(
        **_common(raw, "bamba"),
        layers=tuple(Layer(kind, "dense") for kind in kinds),
        mamba=_mamba(raw),
        attention=_attention(raw, turned=0.5),
    )


def _granite(raw: dict[str, Any]) -> HybridConfig:
    count = int(raw.get("num_local_experts") or 0)
    given = (
        raw.get("layer_types") or raw.get("layers_block_type") or ["mamba" for _ in _layers(raw)]
    )
    turning = raw.get("position_embedding_type") == "rope"
    feeding: Feeding = "experts" if count else "dense"
    added = float(raw.get("residual_multiplier", 1.0))
    scale = float(raw.get("attention_multiplier", 1.0))
    return HybridConfig(
        **_common(raw, "granitemoehybrid"),
        layers=tuple(Layer(_MIXERS[kind], feeding) for kind in given),
        mamba=_mamba(raw),
        attention=_attention(raw, turned=1.0 if turning else 0.0, scale=scale),
        experts=ExpertShape(count, int(raw["num_experts_per_tok"])) if count else None,
        scales=Scales(
            embedding=float(raw.get("embedding_multiplier", 1.0)),
            logits=1 / float(raw.get("logits_scaling", 1.0)),
            mamba_out=added,
            attention_out=added,
            ffn_out=added,
        ),
    )


def _falcon(raw: dict[str, Any]) -> HybridConfig:
    def scale(name: str) -> float:
        return float(raw.get(name + "_multiplier", 1.0))

    gate, down = raw.get("mlp_multipliers") or (1.0, 1.0)
    parts = tuple(float(part) for part in raw.get("ssm_multipliers") or (1.0,) * 5)
    attention = _attention(raw)
    return HybridConfig(
        **_common(raw, "falcon_h1"),
        layers=(Layer("both", "dense"),) * len(_layers(raw)),
        mamba=replace(
            _mamba(raw),
            gate_first=not raw.get("mamba_norm_before_gate", True),
            normed=bool(raw.get("mamba_rms_norm", False)),
        ),
        attention=replace(attention, scale=attention.scale * scale("key")),
        scales=Scales(
            embedding=scale("embedding"),
            logits=scale("lm_head"),
            mamba_in=scale("ssm_in"),
            mamba_parts=parts,
            mamba_out=scale("ssm_out"),
            attention_in=scale("attention_in"),
            attention_out=scale("attention_out"),
            ffn_gate=float(gate),
            ffn_out=float(down),
        ),
    )


def _nemotron(raw: dict[str, Any]) -> HybridConfig:
    """Each layer is one thing. Time steps have a least size here, whatever `time_step_limit`."""
    _expect(raw, "mlp_hidden_act", "relu2")
    _expect(raw, "mamba_hidden_act", "silu")
    pattern = str(raw.get("hybrid_override_pattern", ""))
    letters = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
    kinds = raw.get("layers_block_type") or raw.get("layer_types") or [letters[x] for x in pattern]
    eps = float(raw.get("layer_norm_epsilon", 1e-5))
    if not kinds:
        raise KeyError("layers_block_type")
    return HybridConfig(
        arch="nemotron_h",
        width=int(raw["hidden_size"]),
        vocab_size=int(raw["vocab_size"]),
        window=int(raw["max_position_embeddings"]),
        norm_eps=eps,
        layers=tuple(_SINGLE.get(k) or Layer(_MIXERS[k], "none") for k in kinds),
        mamba=MambaShape(
            heads=int(raw["mamba_num_heads"]),
            head_dim=int(raw["mamba_head_dim"]),
            state=int(raw["ssm_state_size"]),
            groups=int(raw["n_groups"]),
            kernel=int(raw["conv_kernel"]),
            norm_eps=eps,
            dt_limits=(float(raw.get("time_step_min", 0.001)), float("inf")),
            conv_bias=bool(raw.get("use_conv_bias", True)),
        ),
        attention=_attention({"head_dim": 128} | raw, turned=0.0),
        experts=_nemotron_experts(raw) if "moe" in kinds else None,
        activation="relu2",
    )


def _nemotron_experts(raw: dict[str, Any]) -> ExpertShape:
    return ExpertShape(
        count=int(raw["n_routed_experts"]),
        chosen=int(raw["num_experts_per_tok"]),
        scoring="sigmoid",
        groups=int(raw.get("n_group", 1)),
        best_groups=int(raw.get("topk_group", 1)),
        normalised=bool(raw.get("norm_topk_prob", True)),
        scaling=float(raw.get("routed_scaling_factor", 1.0)),
    )


def _common(raw: dict[str, Any], arch: str) -> dict[str, Any]:
    _expect(raw, "hidden_act", "silu")
    return {
        "arch": arch,
        "width": int(raw["hidden_size"]),
        "vocab_size": int(raw["vocab_size"]),
        "window": int(raw["max_position_embeddings"]),
        "norm_eps": float(raw.get("rms_norm_eps", 1e-5)),
    }


def _layers(raw: dict[str, Any]) -> range:
    return range(int(raw["num_hidden_layers"]))


def _mamba(raw: dict[str, Any]) -> MambaShape:
    """Sizes as Bamba names them."""
    inner = raw.get("mamba_d_ssm") or int(raw.get("mamba_expand", 2)) * int(raw["hidden_size"])
    heads, head_dim = int(raw["mamba_n_heads"]), raw.get("mamba_d_head", "auto")
    if head_dim == "auto":
        head_dim = int(inner) // heads
    if heads * int(head_dim) != int(inner):
        raise ValueError(f"{heads} heads of {head_dim} are not {inner} channels")
    return MambaShape(
        heads=heads,
        head_dim=int(head_dim),
        state=int(raw["mamba_d_state"]),
        groups=int(raw["mamba_n_groups"]),
        kernel=int(raw["mamba_d_conv"]),
        norm_eps=float(raw.get("rms_norm_eps", 1e-5)),
        dt_limits=_limits(raw.get("time_step_limit")),
        conv_bias=bool(raw.get("mamba_conv_bias", True)),
    )


def _attention(
    raw: dict[str, Any], turned: float = 1.0, scale: float | None = None
) -> AttentionShape:
    """`turned` is the part of each head that positions turn, where config.json does not say."""
    heads = int(raw["num_attention_heads"])
    head_dim = int(raw.get("head_dim") or int(raw["hidden_size"]) // heads)
    given = raw.get("rope_parameters") or {}
    part = float(given.get("partial_rotary_factor", turned)) if turned else 0.0
    return AttentionShape(
        heads=heads,
        kv_heads=int(raw.get("num_key_value_heads") or heads),
        head_dim=head_dim,
        scale=head_dim**-0.5 if scale is None else scale,
        rope=rope_of(raw, "full_attention", "rope_theta", 10_000.0) if part else None,
        rotated=int(head_dim * part),
    )


def _expect(raw: dict[str, Any], key: str, *known: str) -> None:
    if raw.get(key, known[0]) not in known:
        raise DataError(f"{key} {raw[key]!r} is not supported")


def _limits(given: Any) -> tuple[float, float]:
    """Least and largest time step; infinity comes in two ways."""
    if given is None:
        return 0.0, float("inf")
    low, high = (float(v["__float__"] if isinstance(v, dict) else v) for v in given)
    return low, high


_MIXERS: dict[str, Mixing] = {
    "mamba": "mamba",
    "linear_attention": "mamba",
    "attention": "attention",
    "full_attention": "attention",
}
_SINGLE = {"mlp": Layer("none", "dense"), "moe": Layer("none", "experts")}
_READERS: dict[str, Callable[[dict[str, Any]], HybridConfig]] = {
    "mamba2": _mamba2,
    "granitemoehybrid": _granite,
    "bamba": _bamba,
    "falcon_h1": _falcon,
    "nemotron_h": _nemotron,
}
