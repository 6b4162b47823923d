"""Rotary positions, with each pair of a head's elements lying side by side."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from agentmem.engine.config import Rope

_BLOCK = 1024


class RopeTable:
    """Unit rotations e^(i * position * frequency), complex64 [positions, head_dim / 2].

    Grows in blocks as longer sequences come.
    """

    def __init__(self, rope: Rope, head_dim: int) -> None:
        self._frequencies = frequencies(rope, head_dim)
        self._table = torch.empty(0, head_dim // 2, dtype=torch.complex64)

    def rows(self, start: int, stop: int) -> Tensor:
        """Rotations of positions start..stop, complex64 [n, 1, head_dim / 2]."""
        if stop > len(self._table):
            self._grow(stop)
        return self._table[start:stop, None]

    def _grow(self, stop: int) -> None:
        size = -(-stop // _BLOCK) * _BLOCK
        angles = torch.outer(torch.arange(size, dtype=torch.float64), self._frequencies)
        self._table = torch.polar(torch.ones_like(angles), angles).to(torch.complex64)


def frequencies(rope: Rope, head_dim: int) -> Tensor:
    """Radians per position of each pair, float64 [head_dim / 2]."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    out = rope.theta**-exponents / rope.linear_factor
    if rope.divisors is not None:
        out = out / torch.tensor(rope.divisors, dtype=torch.float64)
    if rope.llama3 is not None:
        out = _llama3(out, *rope.llama3)
    return out


def _llama3(freq: Tensor, factor: float, low: float, high: float, window: int) -> Tensor:
    """Slow rotations divided by `factor`, fast ones kept, a linear blend between."""
    turns = window * freq / (2 * math.pi)
    blend = ((turns - low) / (high - low)).clamp(0, 1)
    return freq * (blend + (1 - blend) / factor)


def rotate(x: Tensor, rows: Tensor) -> Tensor:
    """Turn heads [n, heads, head_dim] by their positions; computed in float32."""
    pairs = torch.view_as_complex(x.float().view(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * rows).flatten(-2).to(x.dtype)
