"""The three steps on tensors, byte for byte. Rows of the cases are given as they are."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from agentmem.engine.state import kernels, rules
from agentmem.engine.state.kernels import Counters
from agentmem.engine.state.layout import LayerStates, StateKind, StatePages, StateView
from tests.engine.state.reference import content, conv, expected, pages, temporal, views_of


class Case(NamedTuple):
    """One row, what is copied (window block, state block, target, bias), accepted after it."""

    computed: int
    scheduled: int
    drafts: int
    accepted: int
    column: int
    table: list[int]
    copy: tuple[int, int, int, int] | None
    after: int


IDS = list(range(8))
CASES = {
    "B1": Case(60, 5, 2, 3, 3, IDS, (3, 4, 3, 1), 1),
    "B3": Case(45, 8, 3, 4, 2, IDS, None, 4),
    "B4": Case(10, 6, 0, 2, 0, list(range(24, 32)), None, 1),
    "B5": Case(30, 2, 0, 5, 1, IDS, None, 1),
    "B7": Case(60, 3, 0, 3, 2, IDS, (2, 3, 3, 1), 3),
    "B8": Case(30, 2, 0, 3, 0, [5, 5, 2, 3, 4, 6, 7, 8], (5, 5, 5, 0), 3),
    "B12": Case(28, 2, 0, 3, 1, IDS, (1, 3, 1, 2), 1),
    "backward": Case(15, 4, 3, 1, 1, IDS, (1, 1, 0, 0), 1),
    "no boundary": Case(3, 4, 3, 4, 0, IDS, None, 4),
}


def ints(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def post(memory: StatePages, case: Case, slots: int = 1, slot: int = 0) -> Counters:
    counters = Counters.empty(slots)
    counters.column[slot], counters.accepted[slot] = case.column, case.accepted
    computed = torch.zeros(slots, dtype=torch.int32)
    computed[slot] = kernels.computed_after(*(ints(v)[0] for v in case[:4]))
    table = torch.zeros(slots, len(case.table), dtype=torch.int32)
    table[slot] = ints(*case.table)
    kernels.postprocess(views_of(memory), [table], counters, computed, ints(slot), 16)
    return counters


@pytest.mark.parametrize("tokens_first", [True, False], ids=["SD", "DS"])
@pytest.mark.parametrize("name", CASES)
def test_postprocess(name: str, tokens_first: bool) -> None:
    case = CASES[name]
    memory = pages(conv(tokens_first=tokens_first), temporal())
    wanted = expected(memory, [case.copy] if case.copy else [])
    if name in ("B8",):
        assert wanted == content(memory), "the same block under two columns: nothing changes"
    counters = post(memory, case)
    assert content(memory) == wanted
    assert counters.accepted.tolist() == [case.after]
    assert counters.column.tolist() == [case.column]


@pytest.mark.parametrize(
    "kinds",
    [
        (temporal(), conv()),
        (conv(4, 8), conv(4, 16), conv(4, 8, tokens_first=False), temporal(24)),
        (temporal(),),
        (conv(),),
    ],
    ids=["temporal first", "three windows", "no window", "window alone"],
)
@pytest.mark.parametrize("name", ["B1", "B12", "backward"])
def test_families_have_their_own_kinds(kinds: tuple[StateKind, ...], name: str) -> None:
    memory = pages(*kinds, layers=3)
    case = CASES[name]
    assert case.copy
    wanted = expected(memory, [case.copy])
    post(memory, case)
    assert content(memory) == wanted


def test_next_block_keeps_its_window() -> None:
    """B11: a packed page of 768 bytes; the 256 bytes of the state move, not the page's."""
    memory = pages(conv(), temporal(), layers=1, stride=768)
    assert memory.stride_bytes == 768 == memory.natural_bytes
    wanted = expected(memory, [(1, 3, 1, 2)])
    before = memory.memory.view(-1, 768).clone()
    post(memory, CASES["B12"])
    assert content(memory) == wanted
    changed = (memory.memory.view(-1, 768) != before).any(1).nonzero().flatten().tolist()
    assert changed == [1]
    padded = pages(conv(), temporal(), layers=1, stride=4096)
    wanted = expected(padded, [(1, 3, 1, 2)])
    post(padded, CASES["B12"])
    assert content(padded) == wanted


def test_rows_of_a_batch_find_their_slots() -> None:
    """B14: tables and counters are indexed by slot; a batch may hold slots in any order."""
    memory = pages(conv(), temporal(), blocks=40)
    table = torch.arange(1, 33, dtype=torch.int32).view(4, 8)
    counters = Counters(ints(1, 0, 1, 2), ints(1, 1, 1, 2))
    wanted = expected(memory, [(2, 2, 1, 0), (27, 28, 25, 1)])
    # Slot 3: 7 tokens ran, boundary 8 lies one on, in the column behind its running one.
    kernels.postprocess(views_of(memory), [table], counters, ints(8, 8, 5, 8), ints(2, 0, 3, 1), 8)
    assert content(memory) == wanted
    assert counters.accepted.tolist() == [1, 1, 1, 2]


def test_counts_of_another_request_are_not_read() -> None:
    """Repeated tokens after rows were moved: a batch's order changes nothing."""
    found = set()
    for mapping in ([0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]):
        memory = pages(conv(), temporal(), blocks=40)
        table = torch.arange(1, 33, dtype=torch.int32).view(4, 8)
        counters = Counters(ints(1, 0, 1, 2), ints(1, 1, 1, 2))
        kernels.postprocess(
            views_of(memory), [table], counters, ints(8, 8, 5, 8), ints(*mapping), 8
        )
        found.add((content(memory), *counters.accepted.tolist()))
    assert len(found) == 1


def test_rows_without_a_slot_are_skipped() -> None:
    """B15."""
    memory = pages(conv(), temporal())
    before = content(memory)
    table = torch.arange(16, dtype=torch.int32).view(2, 8)
    counters = Counters(ints(3, 3), ints(3, 3))
    kernels.postprocess(views_of(memory), [table], counters, ints(65, 65), ints(-1, -1), 16)
    assert content(memory) == before
    assert counters.accepted.tolist() == [3, 3]
    wanted = expected(memory, [(11, 12, 11, 1)])
    kernels.postprocess(views_of(memory), [table], counters, ints(65, 65), ints(-1, 1, -1), 16)
    assert content(memory) == wanted
    assert counters.accepted.tolist() == [3, 1]


def test_layers_agree_on_the_state() -> None:
    """B16: accepted 3, column 1, 32 tokens: the first state's reset to 1 is not seen by others."""
    memory = pages(conv(), temporal())
    before = memory.memory.clone()
    wanted = expected(memory, [(1, 3, 1, 2)])
    counters = post(memory, Case(28, 6, 4, 3, 1, IDS, None, 1))
    assert content(memory) == wanted
    for view, old in zip(
        memory.views, (_over(before, memory, place) for place in memory.places), strict=True
    ):
        assert not torch.equal(view.data[1].view(torch.int16), old[1].view(torch.int16))
    assert counters.accepted.tolist() == [1]


def _over(memory: Tensor, pages: StatePages, place: object) -> Tensor:
    other = StatePages(pages.layers, pages.blocks, pages.stride_bytes)
    other.memory.copy_(memory)
    return other.views[other.places.index(place)].data  # type: ignore[arg-type]


def test_order_of_states_makes_no_difference() -> None:
    found = set()
    for seed in range(4):
        memory = pages(conv(), temporal(), layers=3)
        views = list(views_of(memory))
        random.Random(seed).shuffle(views)
        counters = Counters(ints(3), ints(3))
        kernels.postprocess(views, [ints(*IDS)[None]], counters, ints(65), ints(0), 16)
        found.add(content(memory))
    assert len(found) == 1


def test_groups_have_their_own_tables() -> None:
    first, second = pages(conv(), temporal()), pages(conv(8), layers=1)
    tables = [ints(*IDS)[None], ints(9, 8, 7, 6, 5, 4, 3, 2)[None]]
    wanted = expected(first, [(3, 4, 3, 1)]), expected(second, [(6, 5, 6, 1)])
    views = views_of(first) + views_of(second, 1)
    kernels.postprocess(views, tables, Counters(ints(3), ints(3)), ints(65), ints(0), 16)
    assert (content(first), content(second)) == wanted


@pytest.mark.parametrize(
    ("sampled", "after"), [(3, [3, 9, 3, 9]), (0, [1, 9, 1, 9]), ([2, 7, 0], [1, 9, 2, 9])]
)
def test_scatter(sampled: int | list[int], after: list[int]) -> None:
    """B17."""
    accepted = torch.full((4,), 9, dtype=torch.int32)
    given = sampled if isinstance(sampled, int) else ints(*sampled)
    kernels.scatter_accepted(accepted, given, ints(2, -1, 0))
    assert accepted.tolist() == after


def test_a_sequence_is_added_with_the_block_of_its_state() -> None:
    """B19: 107,360 tokens in blocks of 880."""
    counters = Counters.empty(3)
    counters.accepted[1] = 4
    counters.add(1, 107_360, 880)
    assert counters.column.tolist() == [-1, 121, -1]
    assert counters.accepted.tolist() == [1, 1, 1]


def test_stale_column_of_a_resumed_sequence() -> None:
    """B20: finished, preempted, resumed: to be named in one list is enough."""
    counters = Counters(ints(5, 6, 7, 8), ints(2, 2, 2, 2))
    counters.forget([0], [1], [2])
    assert counters.column.tolist() == [-1, -1, -1, 8]
    counters.forget([], [], [3])
    assert counters.column.tolist() == [-1] * 4 and counters.accepted.tolist() == [1] * 4


def test_shift_within_a_block_is_exact() -> None:
    """B21, the mismatch now and then: 128 rows of 32 KiB shifted by 16 bytes, ten times."""
    kind = StateKind("window", (2048, 8), torch.float16, 0)
    memory = StatePages([LayerStates(0, (kind,))], 129)
    memory.memory.random_(0, 256, generator=torch.Generator().manual_seed(3))
    rows = torch.arange(1, 129)
    wanted = memory.memory.view(129, 2048, 16).clone()
    for _ in range(10):
        wanted[1:, :-1] = wanted[1:, 1:].clone()
        kernels.move(memory.views, [rows], [rows], [rows], torch.ones(128, dtype=torch.int64))
    assert torch.equal(memory.memory.view(129, 2048, 16), wanted)


@pytest.mark.parametrize("bias", [1, 2, 3, 4, 7])
def test_shift_keeps_each_dimension_apart(bias: int) -> None:
    """The window with tokens last: every row of it is shifted alone; beyond its width, nothing."""
    memory = pages(conv(4, 12, tokens_first=False), layers=2)
    wanted = expected(memory, [(2, 2, 2, bias)] if bias < 4 else [])
    one = torch.tensor([2])
    assert kernels.move(memory.views, [one], [one], [one], torch.tensor([bias])) == (
        2 * 12 * max(0, 4 - bias) * 2
    )
    assert content(memory) == wanted


def test_preprocess_and_precopy() -> None:
    """Rows: new, same column, next column, next column after 3 accepted, none."""
    memory = pages(conv(), temporal(), blocks=50)
    table = torch.arange(1, 49, dtype=torch.int32).view(6, 8)
    counters = Counters(ints(-1, 0, 0, 1, 7, 5), ints(1, 2, 1, 3, 4, 2))
    mapping = ints(3, 0, -1, 2, 1)
    sources = kernels.preprocess(counters, ints(31, 0, 9, 14, 7), ints(4, 10, 9, 4, 4), mapping, 16)
    assert sources.column.tolist() == [1, -1, -1, 0, 0]
    assert sources.offset.tolist() == [2, 0, 0, 0, 1]
    assert counters.column.tolist() == [0, 0, 1, 2, 7, 5]
    assert counters.accepted.tolist() == [1, 2, 1, 1, 4, 2]
    wanted = expected(memory, [(26, 28, 27, 2), (17, 17, 18, 0)])
    kernels.precopy(views_of(memory), [table], counters, sources, mapping)
    assert content(memory) == wanted


def test_self_copy_of_a_state_is_a_shift_of_its_window() -> None:
    """Golden step a2: the state stands in column 1 already, the window comes from column 0."""
    memory = pages(conv(), temporal())
    counters = Counters(ints(0), ints(2))
    sources = kernels.preprocess(counters, ints(13), ints(4), ints(0), 16)
    wanted = expected(memory, [(3, 4, 4, 1)])
    table = torch.arange(3, 11, dtype=torch.int32)[None]
    kernels.precopy(views_of(memory), [table], counters, sources, ints(0))
    assert content(memory) == wanted


@pytest.mark.parametrize("seed", range(10))
def test_random_rows(seed: int) -> None:
    """Any batch: the copies that the rules name, byte for byte."""
    dice = random.Random(seed)
    slots, block = 6, dice.choice([4, 16, 17])
    memory = pages(conv(5, 4, dice.random() < 0.5), temporal(8), blocks=slots * 12 + 1)
    table = torch.randperm(slots * 12).int().view(slots, 12) + 1
    mapping = dice.sample(range(slots), 4)
    mapping[dice.randrange(4)] = -1
    counters, computed = Counters.empty(slots), torch.zeros(slots, dtype=torch.int32)
    copies, after = [], [1] * slots
    for slot in range(slots):
        start, drafts = dice.randint(0, 5 * block), dice.randint(0, 3)
        accepted = dice.randint(1, drafts + 1)
        column = rules.running_column(start, 1 + drafts, block)
        counters.column[slot], counters.accepted[slot] = column, accepted
        computed[slot], after[slot] = start + accepted, accepted
        outcome = rules.postprocess(start + accepted, accepted, column, block)
        if slot in mapping:
            after[slot] = 1 if outcome.reset else accepted
            if move := outcome.move:
                at = [int(table[slot, c]) for c in (move.src, move.state_src, move.dst)]
                copies.append((*at, move.bias))
    wanted = expected(memory, copies)  # type: ignore[arg-type]
    kernels.postprocess(views_of(memory), [table], counters, computed, ints(*mapping), block)
    assert content(memory) == wanted
    assert counters.accepted.tolist() == after


def test_views_are_states_in_their_pages() -> None:
    memory = pages(conv(), temporal(), layers=2, stride=2048)
    view: StateView = memory.layer_views(1)[1]
    assert view.blocks == 32 and view.kind.axis is None
    start = 5 * 2048 + memory.places[3].offset_bytes
    view.data[5] = 0
    assert not memory.memory[start : start + 256].any()
    assert memory.memory[start - 8 : start].any() and memory.memory[start + 256 :].any()
    memory.zero(7)
    assert not memory.page(7).any() and memory.page(6).any() and memory.page(8).any()
    with pytest.raises(ValueError, match="do not fit"):
        pages(conv(), stride=8)
