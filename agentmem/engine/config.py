"""The shape of a decoder: what llama, qwen2 and gemma3 have in common and where they differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Activation = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary positions. `llama3` scaling stretches long wavelengths only, `linear` all of them."""

    theta: float
    linear_factor: float = 1.0
    llama3: tuple[float, float, float, int] | None = None
    """factor, low_freq_factor, high_freq_factor, original window."""
    divisors: tuple[float, ...] | None = None
    """Per-frequency divisors given by the file itself (GGUF `rope_freqs`)."""


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes in elements, window in tokens."""

    arch: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_width: int
    vocab_size: int
    window: int
    norm_eps: float
    rope: Rope
    local_rope: Rope | None = None
    """Of the sliding-window layers, where it differs."""
    sliding_window: int | None = None
    sliding: tuple[bool, ...] = field(default=())
    """Which layers see only the last `sliding_window` positions; empty for none."""
    activation: Activation = "silu"
    qk_norm: bool = False
    post_norms: bool = False
    """Norms behind attention and feed-forward too (gemma3)."""
    embed_scale: float = 1.0
    query_scale: float | None = None
    """What queries are multiplied by; None is 1/sqrt(head_dim)."""

    def is_sliding(self, layer: int) -> bool:
        """True when the layer sees a sliding window."""
        return bool(self.sliding) and self.sliding[layer]

    @property
    def attention_scale(self) -> float:
        """Factor on query-key products."""
        return self.head_dim**-0.5 if self.query_scale is None else self.query_scale
