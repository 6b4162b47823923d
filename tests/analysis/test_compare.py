"""`compare` on synthetic runs with planted differences."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import agentmem
from agentmem.analysis.compare import Comparison, Line, Options, Side, compare
from agentmem.analysis.load import Run
from agentmem.records import Contention, Query, Row, Window
from tests.analysis.build_run import write_run
from tests.analysis.planted import Doctor, both, noisy, slower, without, wordier
from tests.analysis.synth import SYSTEMS, manifest


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return made(tmp_path_factory.mktemp("base"), noisy(1, 0.03))


KEPT = ("bm25", "mem0")
"""Two systems tell all that these tests ask, in a third of the time of six."""
NAMED: dict[str, Any] = {
    "systems": {s: manifest()["systems"][s] for s in KEPT},
    "order": list(KEPT),
}


def made(folder: Path, doctor: Doctor | None = None, changes: dict[str, Any] | None = None) -> Run:
    doctors = [without(s) for s in (*SYSTEMS, "no_memory", "oracle_evidence") if s not in KEPT]
    chosen = both(*doctors, doctor) if doctor else both(*doctors)
    return agentmem.load(write_run(folder, chosen, NAMED | (changes or {})))


def against(a: Run, *others: Run, **options: Any) -> Comparison:
    return compare([Side((run,)) for run in (a, *others)], Options(**options))


def line(comparison: Comparison, path: str, side: str = "B") -> Line:
    return next(x for x in comparison.lines if x.path == path and x.against == side)


def verdicts(comparison: Comparison, *groups: str) -> set[str]:
    return {x.judged.verdict for x in comparison.lines if x.metric.group in groups}


def test_the_same_twice_is_equal_and_shows_no_difference(base: Run, tmp_path: Path) -> None:
    found = against(base, made(tmp_path, noisy(2, 0.03)))
    assert verdicts(found, "count", "size", "score") == {"equal"}
    assert verdicts(found, "time", "cpu") == {"no difference shown"}
    assert found.facts["B"] == ()
    asked = {
        x.judged.pairs + x.judged.left_out for x in found.lines if x.metric.room != "construction"
    }
    assert max(asked) == 10, "one pair for each question"


def test_a_slowed_phase_is_worse_there_and_nowhere_else(base: Run, tmp_path: Path) -> None:
    slow = made(tmp_path, both(noisy(2, 0.03), slower("generation", 1.4, "bm25")))
    found = against(base, slow)
    worse = {x.path for x in found.lines if x.judged.verdict == "worse"}
    assert worse == {"bm25.generation.seconds", "bm25.question.seconds"}
    assert "better" not in verdicts(found, "time", "cpu", "count", "size", "score")
    seen = line(found, "bm25.generation.seconds").judged
    assert seen.change == pytest.approx(0.4, abs=0.06) and seen.pairs == 10
    assert seen.change_low is not None and seen.change_low > 0.1 and seen.over == "pairs"
    assert line(against(slow, base), "bm25.generation.seconds").judged.verdict == "better"


def test_a_margin_as_wide_as_the_effect_hides_it(base: Run, tmp_path: Path) -> None:
    slow = made(tmp_path, slower("generation", 1.4, "bm25"))
    margins = Options().margins | {"time": 0.5}
    found = against(base, slow, margins=margins)
    assert line(found, "bm25.generation.seconds").judged.verdict == "no difference shown"


def test_tokens_are_counted_to_the_last_one(base: Run, tmp_path: Path) -> None:
    found = against(base, made(tmp_path, wordier("mem0", "generation", 2)))
    seen = line(found, "mem0.generation.tokens").judged
    # One of ten questions failed; its cost is not the cost of an answer.
    assert (seen.verdict, seen.pairs, seen.left_out) == ("worse", 9, 1)
    assert seen.difference == 2 and "1 failed" in seen.note
    assert line(found, "bm25.generation.tokens").judged.verdict == "equal"
    assert line(found, "mem0.construction.tokens").judged.verdict == "equal"


def test_unknown_tokens_leave_their_unit_out(base: Run, tmp_path: Path) -> None:
    seen = line(against(base, made(tmp_path)), "mem0.construction.tokens").judged
    # The second unit had an attempt that reported nothing; four units and a flush would be five.
    assert (seen.pairs, seen.left_out) == (3, 1) and "1 not known" in seen.note


def test_failed_questions_are_out_of_times_and_in_accuracy(base: Run, tmp_path: Path) -> None:
    def fail(rows: list[Row]) -> list[Row]:
        chosen = ("bm25", ("q3", "q5"))
        return [
            replace(r, status="failed", answer=None, generation_s=None)
            if isinstance(r, Query) and r.system == chosen[0] and r.question_id in chosen[1]
            else r
            for r in rows
        ]

    found = against(base, made(tmp_path, fail))
    seconds = line(found, "bm25.generation.seconds").judged
    assert (seconds.pairs, seconds.left_out) == (8, 2) and "2 failed" in seconds.note
    accuracy = line(found, "bm25.question.accuracy").judged
    assert (accuracy.pairs, accuracy.left_out, accuracy.difference) == (10, 0, -0.1)
    assert line(found, "bm25.question.failed").judged.b == 2


def test_a_system_on_one_side_only(base: Run, tmp_path: Path) -> None:
    names = {"systems": {"bm25": NAMED["systems"]["bm25"]}, "order": ["bm25"]}
    fewer = made(tmp_path, without("mem0"), names)
    for a, b, side in ((base, fewer, "B"), (fewer, base, "A")):
        mine = [x for x in against(a, b).lines if x.system == "mem0"]
        assert {x.judged.verdict for x in mine} == {"not comparable"}
        assert {x.judged.note for x in mine} == {f"not in {side}"}
    assert {x.system for x in against(base, fewer).lines} == set(KEPT)


def altered(**tables: dict[str, Any]) -> dict[str, Any]:
    """Manifest tables with some keys replaced."""
    return {name: manifest()[name] | keys for name, keys in tables.items()}


WORKLOAD = manifest()["workload"]
ALL_GROUPS = {"time", "cpu", "energy", "count", "size", "score"}
BARRED = [
    ({"workload": {"params": {"seed": 7, "unit": "turn"}}}, "unit (session / turn)", ALL_GROUPS),
    ({"workload": {"name": "locomo"}}, "workload (generated / locomo)", ALL_GROUPS),
    ({"workload": {"data_hash": "ff" * 32}}, "data", ALL_GROUPS),
    ({"engine": {"model": "other"}}, "model", ALL_GROUPS),
    ({"embedder": {"dims": 768}}, "embedder", ALL_GROUPS),
    ({"machine": {"cores": 64}}, "machine", {"time", "cpu", "energy"}),
    ({"engine": {"kind": "replay"}}, "replay", {"time", "cpu", "energy"}),
    ({"energy": {"source": "counter"}}, "energy", {"energy"}),
]


@pytest.mark.parametrize(("tables", "why", "groups"), BARRED, ids=[b[1] for b in BARRED])
def test_what_may_not_be_compared(
    base: Run, tmp_path: Path, tables: dict[str, Any], why: str, groups: set[str]
) -> None:
    other = made(tmp_path, noisy(2, 0.03), altered(**tables))
    found = against(base, other)
    barred = {x.metric.group for x in found.lines if x.judged.verdict == "not comparable"}
    assert barred == groups
    assert all(why in x.judged.note for x in found.lines if x.metric.group in groups)
    assert any(fact.key == why.split(" (")[0] for fact in found.facts["B"])
    if why in ("machine", "unit (session / turn)"):
        across = frozenset({why.split(" (")[0]})
        assert "not comparable" not in verdicts(against(base, other, across=across), *ALL_GROUPS)


def test_settings_that_differ_are_said_and_forbid_nothing(base: Run, tmp_path: Path) -> None:
    profile = {"run": {"seed": 7}, "calls": {"sampling": "fixed"}, "answer": {"k": 5}}
    found = against(base, made(tmp_path, noisy(2, 0.03), {"profile": profile}))
    assert [str(f) for f in found.facts["B"]] == ["profile.answer.k: not stated / 5"]
    assert "not comparable" not in verdicts(found, *ALL_GROUPS)


def test_a_crowded_phase_gives_no_times(base: Run, tmp_path: Path) -> None:
    def crowd(rows: list[Row]) -> list[Row]:
        return [
            replace(r, engine_wait_s=5.0)
            if isinstance(r, Window) and (r.system, r.phase) == ("bm25", "generation")
            else r
            for r in rows
        ]

    found = against(base, made(tmp_path, crowd))
    for path in ("bm25.generation.seconds", "bm25.question.seconds"):
        seen = line(found, path).judged
        assert seen.verdict == "not comparable" and "waiting for a core" in seen.note
    assert line(found, "bm25.generation.tokens").judged.verdict == "equal"
    assert line(found, "mem0.generation.seconds").judged.verdict == "no difference shown"


def test_a_busy_machine_gives_no_times(base: Run, tmp_path: Path) -> None:
    """Other work that only the machine's counters show, as with a foreign server."""

    def busy(rows: list[Row]) -> list[Row]:
        at = {"stall_s": 1.0, "steal_s": None, "busy_s": None, "idle_s": None, "cores": 2}
        begin, end = (
            [
                Contention("bm25-ana", edge, at_s, **at | {"stall_s": 1.0 + 0.4 * at_s}),
                Contention(None, edge, at_s, **at | {"stall_s": 1.0 + 0.1 * at_s}),
            ]
            for edge, at_s in (("begin", 0.0), ("end", 10.0))
        )
        return [*begin, *rows, *end]

    found = against(base, made(tmp_path, busy))
    seen = line(found, "bm25.generation.seconds").judged
    assert seen.verdict == "not comparable" and "short of cores 40 %" in seen.note
    assert line(found, "mem0.generation.seconds").judged.verdict == "no difference shown"


def test_repeats_widen_the_margin_to_what_they_differ_by(base: Run, tmp_path: Path) -> None:
    drifted = made(tmp_path / "r2", slower("generation", 1.3))
    slow = made(tmp_path / "b", slower("generation", 1.25))
    alone = compare([Side((base,)), Side((slow,))])
    assert line(alone, "bm25.generation.seconds").judged.verdict == "worse"
    repeats = compare([Side((base, drifted)), Side((slow,))])
    seen = line(repeats, "bm25.generation.seconds")
    assert seen.margin == pytest.approx(0.3, abs=0.04)
    assert seen.judged.verdict == "no difference shown" and seen.judged.pairs == 10


def test_a_run_that_went_round_twice_is_two_repeats(base: Run, tmp_path: Path) -> None:
    def twice(rows: list[Row]) -> list[Row]:
        second = slower("generation", 1.3)(rows)
        return rows + [_again(row) for row in second if type(row).__name__ != "Sample"]

    def _again(row: Row) -> Row:
        changes: dict[str, Any] = {"repeat": 1} if hasattr(row, "repeat") else {}
        changes["scope"] = f"{row.scope}.r1"  # type: ignore[union-attr]
        if hasattr(row, "call_id"):
            changes |= {"call_id": f"{row.call_id}r1"}
        return replace(row, **changes)

    found = against(base, made(tmp_path, twice))
    seen = line(found, "bm25.generation.seconds")
    assert seen.judged.pairs == 10 and seen.margin == pytest.approx(0.3, abs=0.04)
    assert line(found, "bm25.generation.tokens").judged.verdict == "equal"


def test_modelled_joules_are_not_ranked_inside_their_band(base: Run, tmp_path: Path) -> None:
    def hungry(rows: list[Row]) -> list[Row]:
        return [
            replace(r, engine_cpu_s=2 * (r.engine_cpu_s or 0.0)) if isinstance(r, Window) else r
            for r in rows
        ]

    found = against(base, made(tmp_path, hungry))
    assert line(found, "mem0.generation.cpu_seconds").judged.verdict == "worse"
    joules = line(found, "mem0.generation.energy_j")
    assert joules.margin == 3.0 and joules.judged.verdict == "no difference shown"


def test_three_sides_each_against_the_first(base: Run, tmp_path: Path) -> None:
    same = made(tmp_path / "same", noisy(2, 0.03))
    slow = made(tmp_path / "slow", slower("retrieval", 3.0))
    found = against(base, same, slow)
    path = "mem0.retrieval.seconds"
    assert line(found, path, "B").judged.verdict == "no difference shown"
    assert line(found, path, "C").judged.verdict == "worse"


def test_rows_can_be_written_as_json(base: Run) -> None:
    rows = [x.as_dict() for x in against(base, base).lines]
    assert json.loads(json.dumps(rows))[0]["system"] == "bm25"
    assert len({(r["system"], r["phase"], r["metric"]) for r in rows}) == len(rows)
