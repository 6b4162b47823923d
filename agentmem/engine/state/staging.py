"""What a step leaves behind, worked out in staged blocks alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from agentmem.engine.state import kernels, rules
from agentmem.engine.state.layout import StatePages
from agentmem.engine.state.versions import Plan, StateError, StateSlot, Version

Step = Callable[[str], None]
"""Hears of each thing that a transaction is about to do."""


class Staged(NamedTuple):
    """A step that is ready to be published."""

    version: Version
    ready: Mapping[int, int]
    """Token offset -> block with the whole state there: what a claim may name."""
    moved_bytes: int


class Rows(NamedTuple):
    """One state to copy: the block of its window and of its recurrent states, and its target."""

    window: int
    state: int
    into: int
    bias: int


def no_step(_name: str) -> None:
    """Nobody listens."""


def stage(
    pages: StatePages,
    slot: StateSlot,
    accepted: int,
    block: int,
    number: int,
    on_step: Step = no_step,
) -> Staged:
    """Version `number` of a step with `accepted - 1` drafts kept; writes the step's own blocks.

    StateError when a state is missing or more is accepted than was drafted.
    """
    plan = slot.plan
    assert plan is not None
    if not 1 <= accepted <= 1 + plan.drafts:
        raise StateError(f"{accepted} accepted of {plan.drafts} drafts")
    if len(slot.written) != len(pages.places):
        missing = next(p for at, p in enumerate(pages.places) if at not in slot.written)
        raise StateError(f"{missing.kind.name} of layer {missing.layer} was not staged")
    running = plan.computed + plan.scheduled - plan.drafts
    computed = running + accepted - 1
    outcome = rules.postprocess(computed, accepted, plan.column, block)
    ready, moved = {running: plan.write[0]}, 0
    if outcome.move is not None and outcome.move.bias:
        into = plan.write[0] if outcome.reset else plan.apart
        assert into is not None and outcome.checkpoint is not None
        bias = outcome.move.bias
        moved = copy(pages, Rows(plan.write[0], plan.write[bias], into, bias), on_step)
        if outcome.reset:
            ready = {}
        ready[outcome.checkpoint[1]] = into
    kept = 1 if outcome.reset else accepted
    version = Version(number, computed, plan.column, kept, _needed(plan, kept))
    return Staged(version, ready, moved)


def copy(pages: StatePages, rows: Rows, on_step: Step = no_step) -> int:
    """Copy a state of all layers and kinds; gives the bytes moved."""
    bias, moved = torch.tensor([rows.bias]), 0
    for view in pages.views:
        on_step("copy")
        moved += kernels.move(
            [view], [_one(rows.window)], [_one(rows.state)], [_one(rows.into)], bias
        )
    return moved


def _needed(plan: Plan, accepted: int) -> dict[int, int]:
    """The blocks that a version lives on, by column."""
    return {plan.column + draft: plan.write[draft] for draft in sorted({0, accepted - 1})}


def _one(block: int) -> Tensor:
    return torch.tensor([block])
