"""The decisions: golden step tables, chunks, checkpoints, held columns."""

from __future__ import annotations

import random

import pytest

from agentmem.engine.state import rules
from agentmem.engine.state.columns import Columns
from tests.engine.state.simulate import Machine, Step

Golden = tuple[int, int, str, str]
SIZES = [16, 17, 576]


def tables(B: int) -> dict[str, tuple[int, int, list[Golden]]]:
    """Name -> prompt, accepted per step, steps (start, scheduled, precopy, postcopy)."""
    return {
        "a1": (B - 6, 1, [
            (0, B - 6, "-", "-"), (B - 6, 4, "-", "-"), (B - 5, 4, "-", "-"), (B - 4, 4, "-", "-"),
            (B - 3, 4, "0>1", "-"), (B - 2, 4, "-", "-"), (B - 1, 4, "-", "1>0"),
            (B, 4, "-", "-"), (B + 1, 4, "-", "-")]),
        "a2": (B - 5, 2, [
            (0, B - 5, "-", "-"), (B - 5, 4, "-", "-"), (B - 3, 4, "1>1", "-"),
            (B - 1, 4, "-", "1>0"), (B + 1, 4, "-", "-"), (B + 3, 4, "-", "-")]),
        "a3, B-7": (B - 7, 3, [
            (0, B - 7, "-", "-"), (B - 7, 4, "-", "-"), (B - 4, 4, "-", "-"),
            (B - 1, 4, "2>1", "1>0"), (B + 2, 4, "-", "-"), (B + 5, 4, "-", "-")]),
        "a3, B-5": (B - 5, 3, [
            (0, B - 5, "-", "-"), (B - 5, 4, "-", "-"), (B - 2, 4, "2>1", "2>0"),
            (B + 1, 4, "-", "-"), (B + 4, 4, "-", "-")]),
        "a4, B-6": (B - 6, 4, [
            (0, B - 6, "-", "-"), (B - 6, 4, "-", "-"), (B - 2, 4, "3>1", "2>0"),
            (B + 2, 4, "-", "-"), (B + 6, 4, "-", "-")]),
        "a4, B-5": (B - 5, 4, [
            (0, B - 5, "-", "-"), (B - 5, 4, "-", "-"), (B - 1, 4, "3>1", "1>0"),
            (B + 3, 4, "-", "-"), (B + 7, 4, "-", "-")]),
        "prompt B": (B, 4, [(0, B, "-", "-"), (B, 4, "0>1", "-")]),
        "prompt 2B": (2 * B, 4, [
            (0, B, "-", "-"), (B, B, "0>1", "-"), (2 * B, 4, "1>2", "-")]),
    }  # fmt: skip


TEN = [
    (0, 5, "-", "-"),
    (5, 4, "4>8", "-"),
    (9, 1, "8>9", "-"),
]


def shown(move: tuple[int, int] | None) -> str:
    return "-" if move is None else f"{move[0]}>{move[1]}"


def by_rules(block: int, column: int, took: int, step: Step, drafts: int, accepted: int):  # type: ignore[no-untyped-def]
    """One step by the rules: golden form, running column and accepted tokens after it."""
    new = rules.running_column(step.start, step.scheduled, block)
    before = rules.precopy(column, new, took)
    computed = step.start + step.scheduled - drafts + accepted - 1
    outcome = rules.postprocess(computed, accepted, new, block)
    form = (
        step.start,
        step.scheduled,
        shown(before and (before.state_src, before.dst)),
        shown(outcome.move and (outcome.move.state_src, outcome.move.dst)),
    )
    return form, new, 1 if outcome.reset else accepted, outcome


def walk(prompt: int, accepted: int, steps: int, block: int, budget: int) -> list[Golden]:
    """Chunks, then decode steps of 4: simulated, and each step the same by the rules."""
    machine, asked = Machine(block), rules.Prompt(prompt, block, chunk_limit=budget)
    column, took, found = -1, 1, []
    for _ in range(steps):
        start = machine.computed
        decode = start >= prompt
        chunk = 4 if decode else rules.clip_chunk(start, min(budget, prompt - start), asked)
        drafts, kept = (3, accepted) if decode else (0, 1)
        machine.run(chunk, drafts, kept)
        last = machine.steps[-1]
        form, column, took, outcome = by_rules(block, column, took, last, drafts, kept)
        assert form == (start, chunk, shown(last.before), shown(last.after))
        if outcome.checkpoint:
            where, offset = outcome.checkpoint
            assert machine.boundaries[where] == offset == (where + 1) * block
        found.append(form)
    return found


@pytest.mark.parametrize("block", SIZES)
@pytest.mark.parametrize("name", tables(16))
def test_golden_steps(name: str, block: int) -> None:
    prompt, accepted, golden = tables(block)[name]
    assert walk(prompt, accepted, len(golden), block, 10**6) == golden


def test_golden_steps_of_a_long_prompt() -> None:
    B = 576
    golden = [(s * B, n * B, a, b) for s, n, a, b in TEN] + [(10 * B, 4, "9>10", "-")]
    assert walk(10 * B, 4, 4, B, 3072) == golden


@pytest.mark.parametrize("seed", range(20))
def test_rules_agree_with_the_simulation(seed: int) -> None:
    """Random acceptances: also I1 to I3, and what each column that may be hashed holds (I4)."""
    dice = random.Random(seed)
    block = dice.choice([4, 16, 17])
    machine, column, took, acted = Machine(block), -1, 1, 0
    machine.run(dice.randint(1, 3 * block), 0, 1)
    _, column, took, _ = by_rules(block, -1, 1, machine.steps[-1], 0, 1)
    for _ in range(80):
        drafts = dice.randint(0, 3)
        accepted = dice.randint(1, drafts + 1)
        start = machine.computed
        machine.run(1 + drafts, drafts, accepted)
        last = machine.steps[-1]
        form, column, took, outcome = by_rules(block, column, took, last, drafts, accepted)
        assert form[2:] == (shown(last.before), shown(last.after))
        if outcome.checkpoint:
            acted += 1
            dst = outcome.checkpoint[0]
            end = machine.computed
            assert dst in (column, column - 1)
            everything = end % block == 0 and end == start + 1 + drafts
            assert (dst == column) == everything == outcome.reset
            if outcome.move and dst == column:
                assert outcome.move.bias == accepted - 1
            assert machine.states[dst] == (dst + 1) * block
    assert acted


def test_room_for_a_checkpoint_between_drafts_is_foreseen() -> None:
    """Also where several boundaries lie among the drafts."""
    for block in (1, 2, 3, 4, 16):
        for computed in range(3 * block):
            for scheduled in range(1, 7):
                for drafts in range(scheduled):
                    running = computed + scheduled - drafts
                    column = rules.running_column(computed, scheduled, block)
                    needed = False
                    for accepted in range(1, drafts + 2):
                        end = running + accepted - 1
                        outcome = rules.postprocess(end, accepted, column, block)
                        needed |= bool(outcome.move and outcome.move.bias and not outcome.reset)
                    asked = rules.may_checkpoint_apart(computed, scheduled, drafts, block)
                    assert asked == needed


def test_columns_of_small_cases() -> None:
    assert rules.column_of(0, 16) == -1
    assert rules.running_column(0, 16, 16) == 0
    assert rules.running_column(0, 17, 16) == 1
    assert list(rules.forward_columns(0, 16, 2)) == [0, 1, 2]
    assert list(rules.forward_columns(17, 16, 3)) == [1, 2, 3, 4]
    assert rules.accepted_of(0) == 1


def test_illegal_memory_access_on_resume() -> None:
    """The column of a resumed sequence comes from the state's block, not from attention's (B19)."""
    assert rules.column_of(107_360, 880) == 121
    assert rules.column_of(107_360, 16) == 6709
    assert rules.column_of(100_096, 2176) == 45


def test_offset_of_a_row_without_drafts() -> None:
    """B22: what a row is marked as hangs on the configuration, not on this step's drafts."""
    assert rules.draft_mark(True, True, True, 0) == 0
    assert rules.draft_mark(True, True, True, 3) == 3
    assert rules.draft_mark(True, False, True, 0) == -1
    assert rules.draft_mark(True, True, False, 0) == -1
    assert rules.draft_mark(False, True, True, 0) == -1
    move = rules.precopy(0, 1, 4)
    assert move is not None and move.bias == 3 and move.state_src == 3


@pytest.mark.parametrize(
    ("prompt", "plain", "eagle"),
    [(16, 0, 0), (17, 16, 0), (31, 16, 0), (32, 16, 16), (33, 32, 16), (48, 32, 32)],
)
def test_repeat_of_an_exact_multiple_prompt_hits(prompt: int, plain: int, eagle: int) -> None:
    """The checkpoint lies where a lookup of at most n - 1 tokens can find it."""
    assert rules.checkpoint_position(prompt, 16) == plain <= prompt - 1
    assert rules.checkpoint_position(prompt, 16, eagle=True) == eagle


def test_lookahead_moves_the_checkpoint() -> None:
    assert rules.checkpoint_position(35, 16, lookahead=4) == 16
    assert rules.checkpoint_position(36, 16, lookahead=4) == 32
    assert rules.checkpoint_position(3, 16, lookahead=9) == 0


@pytest.mark.parametrize(
    ("start", "want", "prompt", "block", "eagle", "chunk"),
    [
        (0, 2002, 2002, 1600, False, 1600),
        (0, 2002, 2002, 1600, True, 2002),
        (0, 3602, 3602, 1600, True, 1600),
        (0, 3602, 3602, 1600, False, 3200),
        (1600, 1000, 3602, 1600, True, 0),
        (0, 32, 32, 16, False, 16),
        (16, 16, 32, 16, False, 16),
        (21, 100, 64, 16, False, 11),
        (16, 20, 64, 16, False, 16),
        (48, 16, 64, 16, False, 16),
    ],
)  # fmt: skip
def test_chunks(start: int, want: int, prompt: int, block: int, eagle: bool, chunk: int) -> None:
    assert rules.clip_chunk(start, want, rules.Prompt(prompt, block, eagle)) == chunk


def test_a_chunk_stops_where_others_branch_off() -> None:
    prompt = rules.Prompt(100, 16, junction=40)
    assert rules.clip_chunk(0, 100, prompt) == 32
    assert rules.clip_chunk(32, 68, prompt) == 64
    assert rules.clip_chunk(0, 100, rules.Prompt(100, 16, junction=9)) == 96


def test_a_block_larger_than_any_chunk_is_filled_in_pieces() -> None:
    """Requeued forever without output: a prompt always gets on when a step has its full budget."""
    prompt = rules.Prompt(30_000, 12_288, chunk_limit=4000)
    at, ends = 0, []
    while at < prompt.tokens:
        chunk = rules.clip_chunk(at, 4000, prompt)
        assert chunk > 0
        at += chunk
        ends.append(at)
    assert 12_288 in ends and 24_576 in ends


@pytest.mark.parametrize(
    ("prompt", "block", "limit"),
    [(2002, 1600, 2048), (3602, 1600, 1000), (30_000, 1536, 1024), (30_000, 12_288, 4000)],
)
@pytest.mark.parametrize("eagle", [False, True])
def test_state_published_at_a_boundary_was_computed_to_it(
    prompt: int, block: int, limit: int, eagle: bool
) -> None:
    """B31, the silent wrong output after a chunk that ended mid-block: any fragmentation."""
    for seed in range(20):
        dice = random.Random(seed)
        machine, asked = Machine(block), rules.Prompt(prompt, block, eagle, limit)
        while machine.computed < prompt:
            budget = dice.randint(1, limit) if dice.random() < 0.7 else limit
            chunk = rules.clip_chunk(machine.computed, budget, asked)
            assert 0 <= chunk <= budget
            if chunk:
                machine.run(chunk, 0, 1)
                outcome = rules.postprocess(
                    machine.computed, 1, rules.column_of(machine.computed, block), block
                )
                ended_on_boundary = machine.computed % block == 0
                assert (outcome.checkpoint is not None) == ended_on_boundary
        assert all(offset == (c + 1) * block for c, offset in machine.boundaries.items())
        last = rules.checkpoint_position(prompt, block, eagle=eagle)
        assert not last or last in machine.boundaries.values()


def test_sparse_retention() -> None:
    """B34: all; those that can be reached; every k-th and those."""
    offsets = range(16, 161, 16)
    assert all(rules.keeps(o, 16, None, 100) for o in offsets)
    assert [o for o in offsets if rules.keeps(o, 16, 0, 100)] == [96, 112, 128, 144, 160]
    assert [o for o in offsets if rules.keeps(o, 16, 4, 100)] == [64, 96, 128]
    assert [o for o in offsets if rules.keeps(o, 16, 4, 100, eagle=True)] == [64, 80, 128]


def test_hit_respects_the_dropped_block() -> None:
    """Needle loss with drafts: a state hit lies within what a hidden-state drafter leaves."""
    assert rules.hit_limit(100, 96, 16) == 96
    assert rules.hit_limit(96, 96, 16) == 95
    assert rules.hit_limit(100, 96, 16, eagle=True) == 80
    assert rules.hit_limit(20, 16, 16, eagle=True) == 0


# --- held columns


def test_held_columns_of_a_long_prompt() -> None:
    B, columns = 576, Columns(576, 3)
    expected = [
        [0, 0, 0, 0, 1, 1, 1, 1],
        [0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1],
        [0] * 8 + [1] * 5,
        [0] * 9 + [1] * 5,
    ]
    steps = [(0, 5 * B), (5 * B, 4 * B), (9 * B, B), (10 * B, 4)]
    for (computed, scheduled), mask in zip(steps, expected, strict=True):
        columns.advance(computed, scheduled)
        assert columns.mask() == mask


def test_held_columns_around_a_boundary() -> None:
    B, columns = 16, Columns(16, 3)
    columns.advance(0, B - 5)
    columns.advance(B - 5, 4)
    assert columns.mask() == [1, 1, 1, 1]
    columns.advance(B - 3, 4)
    assert columns.mask() == [1, 1, 1, 1, 1]
    columns.advance(B - 1, 4)
    columns.advance(B + 1, 4)
    assert columns.mask() == [0, 1, 1, 1, 1]


@pytest.mark.parametrize("block", [3584, 4608])
@pytest.mark.parametrize("lag", [0, 1, 2])
def test_retirement_skips_gaps(block: int, lag: int) -> None:
    """B33, the symptom being 71 held blocks instead of 8: nulls between held ones stop nothing."""
    columns, prompt = Columns(block, 5), rules.Prompt(480_031, block, chunk_limit=8192)
    at, known, peak = 0, [0] * lag, 0
    while at < prompt.tokens:
        chunk = rules.clip_chunk(at, 8192, prompt)
        known.append(at)
        columns.advance(at, chunk, known[-1 - lag])
        at += chunk
        peak = max(peak, len(columns.held))
    assert peak == 7 + lag
    columns.close()
    assert not columns.held and columns.freed == columns.taken


def test_scratch_is_moved_on_rather_than_taken_anew() -> None:
    columns = Columns(16, 3)
    columns.advance(0, 16)
    assert columns.taken == 4
    columns.advance(16, 16)
    assert columns.taken == 5
    for step in range(2, 9):
        columns.advance(16 * step, 16)
        assert columns.taken == 4 + step
    assert len(columns.held) <= 2 + 3
