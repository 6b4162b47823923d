"""The least bytes that a token of decoding reads: each weight once, the keys and values so far."""

from __future__ import annotations

from pathlib import Path

from agentmem.engine.config import DecoderConfig

BITS = {"fp32": 32.0, "bf16": 16.0, "fp8": 8.0, "int8": 8.0, "int4": 4.0 + (32 + 16) / 32}
"""Of a weight by mode; int4 has a float32 scale and a bf16 offset for 32 of them."""
_ROW_SCALE = {"fp8": 4, "int8": 4}
KV_BYTES = {"fp32": 4.0, "bf16": 2.0, "int8": 1.0}


def config_of(path: Path) -> DecoderConfig:
    """A model's sizes from its GGUF file or folder."""
    from agentmem.engine.config_gguf import config_from_gguf
    from agentmem.engine.config_hub import config_from_folder
    from agentmem.modelfiles.gguf import GGUF

    return config_from_folder(path) if path.is_dir() else config_from_gguf(GGUF.open(path))


def weight_bytes(config: DecoderConfig, mode: str) -> float:
    """Bytes of every matrix that a token passes through, the head included, no embedding row."""
    c = config
    inner, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
    blocks = [
        (inner + 2 * kv, c.width),
        (c.width, inner),
        (2 * c.ffn_width, c.width),
        (c.width, c.ffn_width),
    ]
    ends = "int8" if mode == "int4" else mode
    block = sum(_matrix(rows, columns, mode) for rows, columns in blocks)
    return c.layers * block + _matrix(c.vocab_size, c.width, ends)


def kv_bytes(config: DecoderConfig, kind: str, context: float) -> float:
    """Bytes of keys and values that one token at `context` positions looks at."""
    c = config
    row = 2 * c.kv_heads * (c.head_dim * KV_BYTES[kind] + (4 if kind == "int8" else 0))
    seen = 0.0
    for layer in range(c.layers):
        window = c.sliding_window if c.is_sliding(layer) else None
        seen += context if window is None else min(context, window)
    return seen * row


def floor_tokens_s(
    config: DecoderConfig, mode: str, kind: str, context: float, bandwidth_gb_s: float
) -> float:
    """Tokens a second of one sequence if nothing but reading took time."""
    total = weight_bytes(config, mode) + kv_bytes(config, kind, context)
    return bandwidth_gb_s * 1e9 / total


def _matrix(rows: int, columns: int, mode: str) -> float:
    return rows * columns * BITS[mode] / 8 + rows * _ROW_SCALE.get(mode, 0)
