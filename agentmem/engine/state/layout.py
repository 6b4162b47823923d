"""How recurrent state lies in memory: one page a block, every layer's states behind each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

STATE_FORMAT = 1
"""Version of the layout below; part of the cache identity and of exported sessions."""
ALIGNMENT = 64
"""Each state begins at a multiple of so many bytes."""
NULL_BLOCK = 0


@dataclass(frozen=True, slots=True)
class StateKind:
    """One state of a layer: a window over the last tokens, or all that is left of them.

    `shape` is that of one sequence. `axis` is the axis of a window's tokens (0: [width, dim], 1:
    [dim, width]); None for a recurrent state. A window is `taps - 1` tokens wide and one more for
    each draft; nothing follows from where a kind stands in its layer's list.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    axis: int | None = None

    def __post_init__(self) -> None:
        if self.axis is not None and self.axis >= len(self.shape):
            raise ValueError(f"{self.name}: no axis {self.axis} in {self.shape}")

    @property
    def width(self) -> int:
        """Tokens of a window; 0 for a recurrent state."""
        return 0 if self.axis is None else self.shape[self.axis]

    @property
    def size_bytes(self) -> int:
        """Bytes of the state itself, without what pads it in its page."""
        return math.prod(self.shape) * self.dtype.itemsize


def window(
    taps: int, dim: int, dtype: torch.dtype, *, drafts: int = 0, tokens_first: bool = True
) -> StateKind:
    """The window of a convolution with `taps` taps."""
    width = taps - 1 + drafts
    shape = (width, dim) if tokens_first else (dim, width)
    return StateKind("window", shape, dtype, 0 if tokens_first else 1)


def recurrent(*shape: int, dtype: torch.dtype = torch.float32) -> StateKind:
    """A recurrent state."""
    return StateKind("state", shape, dtype)


@dataclass(frozen=True, slots=True)
class LayerStates:
    """The kinds of one layer, however many and in whatever order its family has them."""

    layer: int
    kinds: tuple[StateKind, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a state lies in its page."""

    layer: int
    kind: StateKind
    offset_bytes: int


@dataclass(frozen=True, slots=True)
class StateView:
    """One state of all blocks, [blocks, *kind.shape]: neighbours within a block, pages between.

    `group` says which block table is meant, where there are several.
    """

    data: Tensor
    kind: StateKind
    group: int = 0

    @property
    def blocks(self) -> int:
        """Blocks there are."""
        return self.data.shape[0]


class StatePages:
    """Pages of `blocks` blocks, block 0 the null block. All zero at first, at no cost.

    A page is as long as its states need, at `ALIGNMENT`, or as `stride_bytes` says.
    """

    def __init__(
        self, layers: Sequence[LayerStates], blocks: int, stride_bytes: int | None = None
    ) -> None:
        self.layers = tuple(layers)
        self.blocks = blocks
        self.places, self.natural_bytes = _place(self.layers)
        self.stride_bytes = stride_bytes or self.natural_bytes
        if self.stride_bytes < self.natural_bytes or self.stride_bytes % 8:
            raise ValueError(f"{self.natural_bytes} bytes do not fit pages of {self.stride_bytes}")
        self.memory = torch.zeros(blocks * self.stride_bytes, dtype=torch.uint8)
        self.views = tuple(self._view(place) for place in self.places)
        numbers: dict[int, list[int]] = {}
        for number, place in enumerate(self.places):
            numbers.setdefault(place.layer, []).append(number)
        self._numbers = {layer: tuple(mine) for layer, mine in numbers.items()}

    @property
    def state_bytes(self) -> int:
        """Bytes of all states of one block, padding left out: what a whole copy moves."""
        return sum(place.kind.size_bytes for place in self.places)

    def numbers(self, layer: int) -> tuple[int, ...]:
        """Where a layer's states stand among `places` and `views`, in the order of its kinds."""
        return self._numbers[layer]

    def layer_views(self, layer: int) -> tuple[StateView, ...]:
        """A layer's states, in the order of its kinds."""
        return tuple(self.views[number] for number in self._numbers[layer])

    def zero(self, block: int) -> None:
        """Forget what a block held."""
        self.page(block).zero_()

    def page(self, block: int) -> Tensor:
        """The bytes of a block, uint8 [stride_bytes]."""
        start = block * self.stride_bytes
        return self.memory[start : start + self.stride_bytes]

    def _view(self, place: Place) -> StateView:
        kind = place.kind
        item = kind.dtype.itemsize
        typed = self.memory.view(kind.dtype)
        steps = [math.prod(kind.shape[i + 1 :]) for i in range(len(kind.shape))]
        data = typed.as_strided(
            (self.blocks, *kind.shape),
            (self.stride_bytes // item, *steps),
            place.offset_bytes // item,
        )
        return StateView(data, kind)


def _place(layers: Sequence[LayerStates]) -> tuple[tuple[Place, ...], int]:
    places: list[Place] = []
    at = 0
    for layer in layers:
        for kind in layer.kinds:
            places.append(Place(layer.layer, kind, at))
            at = -(-(at + kind.size_bytes) // ALIGNMENT) * ALIGNMENT
    return tuple(places), at
