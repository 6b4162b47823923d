"""Rotary positions, with each pair of a head's elements lying side by side."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from agentmem.engine.config import Rope

_BLOCK = 1024


class RopeTable:
    """Cosines and sines of position * frequency, float32 [positions, head_dim / 2, 2].

    Grows in blocks as longer sequences come.
    """

    def __init__(self, rope: Rope, head_dim: int) -> None:
        self._frequencies = frequencies(rope, head_dim)
        self._table = torch.empty(0, head_dim // 2, 2)

    def at(self, positions: Tensor) -> Tensor:
        """Cosine and sine at these positions [n], float32 [n, head_dim / 2, 2]."""
        need = int(positions.max()) + 1 if len(positions) else 0
        if need > len(self._table):
            self._grow(need)
        return self._table[positions]

    def _grow(self, stop: int) -> None:
        size = -(-stop // _BLOCK) * _BLOCK
        angles = torch.outer(torch.arange(size, dtype=torch.float64), self._frequencies)
        self._table = torch.stack((angles.cos(), angles.sin()), -1).float()


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
