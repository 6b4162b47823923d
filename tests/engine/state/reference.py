"""The copies byte by byte, row by row, from a photograph of the memory: slow and obvious."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from agentmem.engine.state.layout import LayerStates, Place, StateKind, StatePages, StateView

Half = torch.float16


def conv(width: int = 4, dim: int = 64, tokens_first: bool = True) -> StateKind:
    shape = (width, dim) if tokens_first else (dim, width)
    return StateKind("window", shape, Half, 0 if tokens_first else 1)


def temporal(size: int = 128) -> StateKind:
    return StateKind("state", (size,), Half)


def pages(*kinds: StateKind, layers: int = 2, blocks: int = 32, stride: int = 0) -> StatePages:
    """Random bytes, NaNs and all."""
    made = StatePages([LayerStates(i, kinds) for i in range(layers)], blocks, stride or None)
    made.memory.random_(0, 256, generator=torch.Generator().manual_seed(blocks + layers))
    return made


def expected(memory: StatePages, copies: Sequence[tuple[int, int, int, int]]) -> bytes:
    """Memory after copies (window block, state block, target, bias) of every layer and kind."""
    old = memory.memory.numpy().tobytes()
    new = bytearray(old)
    for place in memory.places:
        for windows, states, into, bias in copies:
            _copy(old, new, place, memory.stride_bytes, (windows, states, into, bias))
    return bytes(new)


def _copy(
    old: bytes, new: bytearray, place: Place, stride: int, copy: tuple[int, int, int, int]
) -> None:
    windows, states, into, bias = copy
    kind, item = place.kind, place.kind.dtype.itemsize
    target = into * stride + place.offset_bytes
    if kind.axis is None:
        source = states * stride + place.offset_bytes
        new[target : target + kind.size_bytes] = old[source : source + kind.size_bytes]
        return
    source, width = windows * stride + place.offset_bytes, kind.width
    dims = kind.size_bytes // item // width
    for token in range(width - bias):
        for dim in range(dims):
            from_, to = (
                ((token + bias) * dims + dim, token * dims + dim)
                if kind.axis == 0
                else (dim * width + token + bias, dim * width + token)
            )
            here, there = target + to * item, source + from_ * item
            new[here : here + item] = old[there : there + item]


def views_of(memory: StatePages, group: int = 0) -> tuple[StateView, ...]:
    return tuple(StateView(view.data, view.kind, group) for view in memory.views)


def content(memory: StatePages) -> bytes:
    return memory.memory.numpy().tobytes()
