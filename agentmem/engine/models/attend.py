"""Causal attention over plain keys and values, one tensor a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from agentmem.engine.config_hybrid import AttentionShape
from agentmem.engine.kernels.base import Kernels
from agentmem.engine.kernels.weights import Weight


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """Rows of `qkv`: queries, keys, values, head by head, in the order of the checkpoint."""

    qkv: Weight
    qkv_bias: Tensor | None
    out: Weight
    out_bias: Tensor | None


@dataclass(frozen=True, slots=True)
class KeysValues:
    """What one layer knows of some sequences: of each [2, kv_heads, positions, head_dim]."""

    of: tuple[Tensor, ...]

    @classmethod
    def empty(cls, shape: AttentionShape, sequences: int, dtype: torch.dtype) -> KeysValues:
        """The state in front of the first token."""
        return cls((torch.empty(2, shape.kv_heads, 0, shape.head_dim, dtype=dtype),) * sequences)

    def cut(self, sequence: int, length: int) -> KeysValues:
        """One sequence alone, its first positions only."""
        return KeysValues((self.of[sequence][:, :, :length],))

    @property
    def size_bytes(self) -> int:
        """Of all sequences."""
        return sum(t.nbytes for t in self.of)


def attend(
    x: Tensor,
    starts: Sequence[int],
    rotations: Tensor | None,
    shape: AttentionShape,
    weights: AttentionWeights,
    state: KeysValues,
    kernels: Kernels,
) -> tuple[Tensor, KeysValues]:
    """x [n, width] to [n, width]; sequence i is rows starts[i] to starts[i + 1], behind its state.

    rotations float32 [n, rotated / 2, 2] (cosine, sine), or None. Nothing is written to.
    """
    qkv = kernels.linear(x, weights.qkv, weights.qkv_bias).view(len(x), -1, shape.head_dim)
    turning = shape.heads + shape.kv_heads
    qk, values = qkv[:, :turning], qkv[:, turning:]
    if rotations is not None:
        qk = _turn(qk, rotations, shape.rotated)
    queries = qk[:, : shape.heads]
    new = torch.stack((qk[:, shape.heads :], values)).transpose(1, 2)
    known, out = [], torch.empty_like(queries)
    for i, before in enumerate(state.of):
        rows = slice(starts[i], starts[i + 1])
        both = torch.cat((before, new[:, :, rows]), dim=2)
        known.append(both)
        out[rows] = _one(queries[rows], both, shape.scale)
    mixed = kernels.linear(out.flatten(1), weights.out, weights.out_bias)
    return mixed, KeysValues(tuple(known))


def _one(queries: Tensor, both: Tensor, scale: float) -> Tensor:
    """Queries [n, heads, dim] are of the last n positions: [n, heads, dim]."""
    rows, positions = len(queries), both.shape[2]
    seen = torch.ones(rows, positions, dtype=torch.bool).tril(positions - rows)
    q, k, v = queries.transpose(0, 1)[None], both[0][None], both[1][None]
    mask = None if rows == 1 else seen
    out = F.scaled_dot_product_attention(q, k, v, mask, scale=scale, enable_gqa=True)
    return out[0].transpose(0, 1)


def _turn(qk: Tensor, rotations: Tensor, rotated: int) -> Tensor:
    """The two halves of each head's leading elements turned against each other."""
    cos, sin = (part[:, None] for part in rotations.unbind(-1))
    first, second = qk[..., :rotated].float().chunk(2, dim=-1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return torch.cat((turned.to(qk.dtype), qk[..., rotated:]), dim=-1)
