"""Launches the copies of recurrent state; `agentmem.engine.state.kernels` says what they do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from agentmem.engine.gpu.kernels import state as device
from agentmem.engine.state.kernels import Counters, Sources
from agentmem.engine.state.layout import StateKind, StateView

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_BLOCK = 1024
_TILE = 1024
PARTS = 16
"""Programs that share one state of one row."""


class Alike(NamedTuple):
    """States of one shape: moved by one launch, as whole numbers of their size."""

    base: Tensor
    places: Tensor
    """int64 [states]: where each begins behind `base`, in elements."""
    kind: StateKind
    group: int


def alike(views: Sequence[StateView]) -> tuple[Alike, ...]:
    """Views of one memory by shape; made once, good for as long as the memory is."""
    classes: dict[tuple[object, ...], list[StateView]] = {}
    for view in views:
        kind = view.kind
        key = (kind.dtype.itemsize, kind.shape, kind.axis, view.group, view.data.stride())
        classes.setdefault(key, []).append(view)
    return tuple(_class(members) for members in classes.values())


def postprocess(
    classes: Sequence[Alike],
    tables: Sequence[Tensor],
    counters: Counters,
    computed: Tensor,
    mapping: Tensor,
    block: int,
    seen: Tensor | None = None,
) -> None:
    """See `state.kernels.postprocess`; tables int32 [slots, columns]. `seen` is room for a copy."""
    if not len(mapping):
        return
    snapshot = counters.accepted.clone() if seen is None else seen.copy_(counters.accepted)
    _postprocess(classes, tables, counters, snapshot, computed, mapping, block)


def _postprocess(
    classes: Sequence[Alike],
    tables: Sequence[Tensor],
    counters: Counters,
    seen: Tensor,
    computed: Tensor,
    mapping: Tensor,
    block: int,
) -> None:
    for number, (each, table, shape, constants) in enumerate(_launches(classes, tables)):
        device.postprocess_state[(len(mapping), len(each.places), PARTS)](
            each.base, each.places, table, seen, counters.accepted, counters.column, computed,
            mapping, table.stride(0), block, *shape, PARTS, FIRST=number == 0, **constants,
        )  # fmt: skip


def precopy(
    classes: Sequence[Alike],
    tables: Sequence[Tensor],
    counters: Counters,
    sources: Sources,
    mapping: Tensor,
) -> None:
    """See `state.kernels.precopy`."""
    if not len(mapping):
        return
    for each, table, shape, constants in _launches(classes, tables):
        device.precopy_state[(len(mapping), len(each.places), PARTS)](
            each.base, each.places, table, sources.column, sources.offset, counters.column,
            mapping, table.stride(0), *shape, PARTS, **constants,
        )  # fmt: skip


def _launches(
    classes: Sequence[Alike], tables: Sequence[Tensor]
) -> Iterator[tuple[Alike, Tensor, tuple[int, ...], dict[str, int]]]:
    """Each class, its table, its sizes in elements, its constants."""
    for each in classes:
        kind, table = each.kind, tables[each.group]
        count, stride = math.prod(kind.shape), each.base.stride(0)
        if kind.axis is None:
            yield each, table, (stride, count, 0, 0, 0, 0), {"WIDTH": 0, "DIMS": 1, "BLOCK": _BLOCK}
            continue
        width, dims = kind.width, count // kind.width
        steps = (dims, 1) if kind.axis == 0 else (1, width)
        room = 1 << (width - 1).bit_length()
        constants = {"WIDTH": room, "DIMS": max(1, _TILE // room), "BLOCK": _BLOCK}
        yield each, table, (stride, count, width, *steps, dims), constants


def _class(members: Sequence[StateView]) -> Alike:
    first = members[0]
    kind = first.kind
    if kind.axis not in (None, 0) and kind.axis != len(kind.shape) - 1:
        raise ValueError(f"{kind.name}: tokens must come first or last in {kind.shape}")
    size = kind.dtype.itemsize
    start = first.data.data_ptr()
    places = [(view.data.data_ptr() - start) // size for view in members]
    base = first.data.view(_INTEGERS[size])
    return Alike(base, torch.tensor(places, device=base.device), kind, first.group)
