"""How keys and values lie in memory: groups of layers, blocks of positions, one page each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from agentmem.engine.config import DecoderConfig
from agentmem.errors import EngineError

KVKind = Literal["fp32", "bf16", "int8"]
PAGE_FORMAT = 1
"""Version of the layout below; part of the cache identity and of exported sessions."""
NULL_BLOCK = 0
"""Never handed out: what a block table holds where nothing is kept."""
BLOCK_SIZE = 16
"""Positions in a block, unless an engine is told otherwise."""


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """Layers that keep the same positions: all of them, or only the last `window`.

    A token sees itself and the `window - 1` positions before it.
    """

    layers: tuple[int, ...]
    kv_heads: int
    head_dim: int
    window: int | None = None


def groups_of(config: DecoderConfig) -> tuple[GroupSpec, ...]:
    """The groups of a model: full layers first, then sliding ones, where there are any."""
    full = tuple(i for i in range(config.layers) if not config.is_sliding(i))
    sliding = tuple(i for i in range(config.layers) if config.is_sliding(i))
    kinds = ((full, None), (sliding, config.sliding_window))
    return tuple(
        GroupSpec(layers, config.kv_heads, config.head_dim, window)
        for layers, window in kinds
        if layers
    )


@dataclass(frozen=True, slots=True)
class KVPages:
    """Keys and values of one group, [layers, 2, blocks, kv_heads, block_size, head_dim].

    Index 0 of the second axis are keys. `scales` belong to int8 pages: float32
    [layers, 2, blocks, kv_heads, block_size], one a row; value = data * scale. Memory is taken by
    the system only when a block is first written.
    """

    data: Tensor
    scales: Tensor | None
    kind: KVKind

    @classmethod
    def empty(cls, spec: GroupSpec, blocks: int, block_size: int, kind: KVKind) -> KVPages:
        """Pages of `blocks` blocks, the null block included, of undefined content.

        EngineError when memory does not hold them.
        """
        shape = (len(spec.layers), 2, blocks, spec.kv_heads, block_size, spec.head_dim)
        try:
            data = torch.empty(shape, dtype=_DTYPES[kind])
            scales = torch.empty(shape[:-1], dtype=torch.float32) if kind == "int8" else None
        except (RuntimeError, TypeError):  # what torch says of too much, and of far too much
            size = f"{math.prod(shape) * _DTYPES[kind].itemsize / 1e6:,.0f} MB"
            message = f"this machine has no {size} for keys and values; take a smaller cache"
            raise EngineError(message) from None
        return cls(data, scales, kind)

    @property
    def blocks(self) -> int:
        """Blocks there are."""
        return self.data.shape[2]

    @property
    def block_size(self) -> int:
        """Positions in a block."""
        return self.data.shape[4]

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all layers of the group."""
        own = self.data[:, :, 0].numel() * self.data.element_size()
        return own + (0 if self.scales is None else self.scales[:, :, 0].numel() * 4)


_DTYPES: dict[KVKind, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "int8": torch.int8,
}
