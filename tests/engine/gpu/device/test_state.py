"""Copies of recurrent state: bytes as in torch, in any order of programs; and the racy form."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from agentmem.engine.gpu import state
from agentmem.engine.state import kernels
from agentmem.engine.state.kernels import Counters
from agentmem.engine.state.layout import LayerStates, StateKind, StatePages, StateView
from tests.engine.gpu.device.order import Order, forward, program_order, reverse, shuffled
from tests.engine.gpu.device.support import DEVICE

ORDERS: dict[str, Order] = {
    "forward": forward,
    "reverse": reverse,
    **{f"shuffle {seed}": shuffled(seed) for seed in range(2)},
}
Half = torch.float16
SD = StateKind("window", (4, 24), Half, 0)
DS = StateKind("window", (24, 4), Half, 1)
WHOLE = StateKind("state", (40,), torch.float32)
interpreted = pytest.mark.skipif(
    os.environ.get("AGENTMEM_KERNELS") != "interpreter", reason="a device has no order to choose"
)


@pytest.fixture(autouse=True)
def few_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes its time with each program."""
    if DEVICE == "cpu":
        monkeypatch.setattr(state, "PARTS", 2)


class World(NamedTuple):
    """Everything a step works on."""

    views: tuple[StateView, ...]
    memory: Tensor
    table: Tensor
    counters: Counters
    mapping: Tensor


def ints(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def world(columns: list[int], accepted: list[int], mapping: list[int], *kinds: StateKind) -> World:
    """Random bytes; tables of 8 columns for as many slots as there are counters."""
    slots = len(columns)
    layers = [LayerStates(i, kinds or (SD, WHOLE)) for i in range(2)]
    pages = StatePages(layers, slots * 8 + 1)
    pages.memory.random_(0, 256, generator=torch.Generator().manual_seed(1))
    memory = pages.memory.to(DEVICE)
    views = tuple(_on_device(view, memory) for view in pages.views)
    table = torch.arange(1, slots * 8 + 1, dtype=torch.int32, device=DEVICE).view(slots, 8)
    return World(views, memory, table, Counters(ints(*columns), ints(*accepted)), ints(*mapping))


def _on_device(view: StateView, memory: Tensor) -> StateView:
    typed = memory.view(view.kind.dtype)
    there = typed.as_strided(view.data.shape, view.data.stride(), view.data.storage_offset())
    return StateView(there, view.kind, view.group)


Step = Callable[[World, Tensor, int], None]


def ours(w: World, computed: Tensor, block: int) -> None:
    state.postprocess(state.alike(w.views), [w.table], w.counters, computed, w.mapping, block)


def in_torch(w: World, computed: Tensor, block: int) -> None:
    kernels.postprocess(w.views, [w.table], w.counters, computed, w.mapping, block)


def racy(w: World, computed: Tensor, block: int) -> None:
    """One buffer is read by all programs and written by one of them."""
    live = w.counters.accepted
    state._postprocess(
        state.alike(w.views), [w.table], w.counters, live, computed, w.mapping, block
    )


def race_case() -> tuple[World, Tensor, int]:
    """All accepted at boundary 32: accepted becomes 1 while siblings still need the 3."""
    return world([1, 3], [3, 2], [0, 1]), ints(32, 64), 16


def outcome(step: Step, case: tuple[World, Tensor, int]) -> tuple[Tensor, list[int]]:
    step(*case)
    return case[0].memory.cpu(), case[0].counters.accepted.tolist()


def wrong_orders(step: Step) -> list[str]:
    """Orders of programs in which a step differs from the snapshot's semantics."""
    memory, accepted = outcome(in_torch, race_case())
    found = []
    for name, order in ORDERS.items():
        with program_order(order) as ran:
            got, counted = outcome(step, race_case())
        assert len(ran) > 2
        assert counted == accepted, "the counter alone shows nothing"
        if not torch.equal(got, memory):
            found.append(name)
    return found


@interpreted
def test_layers_disagree_on_the_state_in_the_racy_form() -> None:
    assert wrong_orders(racy)


@interpreted
def test_layers_agree_on_the_state_in_every_order() -> None:
    assert wrong_orders(ours) == []


@pytest.mark.parametrize(
    "kinds", [(SD, WHOLE), (WHOLE, DS), (SD, DS, SD, WHOLE), (WHOLE,), (DS,)], ids=str
)
def test_postprocess(kinds: tuple[StateKind, ...]) -> None:
    """Rows that act in all ways, one without a slot, one that does nothing."""
    columns, accepted = [1, 3, 1, 2, 3, 0], [3, 3, 1, 2, 1, 4]
    computed = ints(32, 64, 16, 33, 50, 3)
    case = world(columns, accepted, [3, 0, -1, 1, 2, 5], *kinds)
    want = world(columns, accepted, [3, 0, -1, 1, 2, 5], *kinds)
    in_torch(want, computed, 16)
    ours(case, computed, 16)
    assert torch.equal(case.memory, want.memory)
    assert case.counters.accepted.tolist() == want.counters.accepted.tolist()


@pytest.mark.parametrize("kinds", [(SD, WHOLE), (DS, WHOLE)], ids=["SD", "DS"])
@pytest.mark.parametrize("seed", range(2))
def test_precopy(seed: int, kinds: tuple[StateKind, ...]) -> None:
    dice = random.Random(seed)
    columns = [dice.randint(-1, 1) for _ in range(4)]
    accepted = [dice.randint(1, 4) for _ in range(4)]
    after = []
    for step in (kernels.precopy, None):
        case = world(columns, accepted, [2, 0, -1, 3], *kinds)
        sources = kernels.preprocess(
            case.counters, ints(13, 9, 0, 29), ints(4, 4, 1, 4), case.mapping, 16
        )
        if step is None:
            classes = state.alike(case.views)
            state.precopy(classes, [case.table], case.counters, sources, case.mapping)
        else:
            step(case.views, [case.table], case.counters, sources, case.mapping)
        after.append(case.memory)
    assert torch.equal(*after)


def test_shift_within_a_block_is_exact() -> None:
    """Overlapping rows: all of a window is read before any of it is written."""
    kind = StateKind("window", (300, 8), Half, 0)
    columns, accepted = [0, 0, 0], [3, 2, 4]
    case, want = (world(columns, accepted, [0, 1, 2], kind) for _ in range(2))
    in_torch(want, ints(16, 16, 16), 16)
    ours(case, ints(16, 16, 16), 16)
    assert torch.equal(case.memory, want.memory)


def test_tokens_in_the_middle_are_refused() -> None:
    with pytest.raises(ValueError, match="first or last"):
        state.alike(world([0], [1], [0], StateKind("odd", (2, 3, 4), Half, 1)).views)
