"""The three steps on the states of a batch, in torch.

Everything that a step reads is read before anything is written: decisions come from a snapshot of
the counters, and copies from gathered rows. So neither the order of layers, states and rows nor
blocks that overlap make a difference. Counters and tables are indexed by slot; `mapping` gives the
slot of each batch row, -1 for rows to be left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from agentmem.engine.state.layout import StateView
from agentmem.engine.state.rules import column_of


@dataclass(frozen=True, slots=True)
class Counters:
    """What a device knows of each slot: int32 [slots] each."""

    column: Tensor
    """The running column, -1 before the first step."""
    accepted: Tensor

    @classmethod
    def empty(cls, slots: int) -> Counters:
        """No slot in use."""
        return cls(
            torch.full((slots,), -1, dtype=torch.int32), torch.ones(slots, dtype=torch.int32)
        )

    def add(self, slot: int, computed: int, block: int) -> None:
        """A sequence begins or resumes; `block` is that of the state, not of attention."""
        self.column[slot] = column_of(computed, block)
        self.accepted[slot] = 1

    def forget(self, *slots: Sequence[int]) -> None:
        """Drop finished, preempted and resumed sequences: to be in one of the lists is enough."""
        for each in slots:
            index = torch.tensor(each, dtype=torch.int64)
            self.column[index] = -1
            self.accepted[index] = 1


class Sources(NamedTuple):
    """Of each batch row: the column its state stands in, and how many tokens on; int32 [rows]."""

    column: Tensor
    offset: Tensor


def scatter_accepted(accepted: Tensor, sampled: Tensor | int, mapping: Tensor) -> None:
    """Note the tokens sampled by each row with its slot; none counts as 1."""
    live = mapping >= 0
    each = torch.as_tensor(sampled, dtype=torch.int32).expand(mapping.shape)
    accepted[mapping[live].long()] = each[live].clamp(min=1)


def preprocess(
    counters: Counters, computed: Tensor, scheduled: Tensor, mapping: Tensor, block: int
) -> Sources:
    """Move every row's slot on to its running column; gives where the state was.

    `computed` and `scheduled` are per row. A slot that changes columns starts at 1 accepted.
    """
    live = mapping >= 0
    slots = mapping.clamp(min=0).long()
    old = torch.where(live, counters.column[slots], -1)
    offset = torch.where(live, (counters.accepted[slots] - 1).clamp(min=0), 0)
    new = (torch.div(computed + scheduled + block - 1, block, rounding_mode="floor") - 1).int()
    moved = live & (old >= 0) & (old != new)
    counters.column[slots[live]] = new[live]
    counters.accepted[slots[moved]] = 1
    return Sources(old, offset)


def precopy(
    views: Sequence[StateView],
    tables: Sequence[Tensor],
    counters: Counters,
    sources: Sources,
    mapping: Tensor,
) -> None:
    """Bring states into the running column of rows whose column changed.

    `tables[group]` int [slots, columns]: blocks.
    """
    slots = mapping.clamp(min=0).long()
    column = counters.column[slots]
    act = (mapping >= 0) & (sources.column >= 0) & (sources.column != column)
    rows = act.nonzero().flatten()
    _copy_columns(
        views, tables, slots[rows], sources.column[rows], column[rows], sources.offset[rows]
    )


def postprocess(
    views: Sequence[StateView],
    tables: Sequence[Tensor],
    counters: Counters,
    computed: Tensor,
    mapping: Tensor,
    block: int,
) -> None:
    """Save the state at a boundary that a step has crossed, in all layers alike.

    `computed` int [slots]: tokens after the step, without rejected drafts.
    """
    live = mapping[mapping >= 0].long()
    # Indexing copies: `took` is the snapshot of the counters that change below.
    new, took, src = computed[live], counters.accepted[live], counters.column[live]
    running = new - took + 1
    aligned = torch.div(new, block, rounding_mode="floor") * block
    act = (aligned >= running) & (aligned > 0)
    bias, dst = aligned - running, torch.div(aligned, block, rounding_mode="floor") - 1
    same = dst == src
    copy = (act & ~(same & (bias == 0))).nonzero().flatten()
    _copy_columns(views, tables, live[copy], src[copy], dst[copy], bias[copy])
    counters.accepted[live[act & same]] = 1


def computed_after(computed: Tensor, scheduled: Tensor, drafts: Tensor, accepted: Tensor) -> Tensor:
    """Tokens after a step, for callers that know what it began from."""
    return computed + scheduled - drafts + accepted - 1


def _copy_columns(
    views: Sequence[StateView],
    tables: Sequence[Tensor],
    slots: Tensor,
    src: Tensor,
    dst: Tensor,
    bias: Tensor,
) -> None:
    if not len(slots):
        return
    src, dst, bias = src.long(), dst.long(), bias.long()
    into = [table[slots, dst].long() for table in tables]
    windows = [table[slots, src].long() for table in tables]
    states = [table[slots, (src + bias).clamp(max=table.shape[1] - 1)].long() for table in tables]
    move(views, windows, states, into, bias)


def move(
    views: Sequence[StateView],
    windows: Sequence[Tensor],
    states: Sequence[Tensor],
    into: Sequence[Tensor],
    bias: Tensor,
) -> int:
    """Copy n states: int64 [n] blocks per group; gives the bytes moved.

    A window comes from block `windows`, shifted left by `bias`, and what it had no room for stays
    as it was in `into`; a recurrent state comes from block `states`. Only a state's own bytes
    move, whatever pads it.
    """
    shifts = sorted(set(bias.tolist()))
    gathered: list[tuple[Tensor, Tensor, Tensor]] = []
    moved = 0
    for view in views:
        group, axis = view.group, view.kind.axis
        if axis is None:
            gathered.append((view.data, into[group], view.data[states[group]]))
            continue
        for shift in shifts:
            rows = (bias == shift).nonzero().flatten()
            kept = view.kind.width - shift
            if kept > 0:
                taken = view.data[windows[group][rows]].narrow(axis + 1, shift, kept)
                gathered.append((view.data.narrow(axis + 1, 0, kept), into[group][rows], taken))
    for target, blocks, taken in gathered:
        target[blocks] = taken
        moved += taken.numel() * taken.element_size()
    return moved
