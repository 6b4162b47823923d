"""Every accounting rule finds its own planted faults, and an honest run passes them all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import agentmem
from agentmem.analysis.checks import check_run, failed
from agentmem.records import Call, CallBegin, Failure, Query, Row, Unit, Window
from tests.analysis.build_run import Doctor, edit, insert, write_run
from tests.analysis.synth import begin_of, moved, new_call


def calls(rows: list[Row], **match: object) -> list[Call]:
    return [
        r for r in rows if isinstance(r, Call) and all(getattr(r, k) == v for k, v in match.items())
    ]


def is_call(row: Row, **match: object) -> bool:
    return isinstance(row, Call) and all(getattr(row, k) == v for k, v in match.items())


def double(rows: list[Row]) -> list[Row]:
    return [*rows, calls(rows, kind="extract")[0]]


def booked_again(rows: list[Row]) -> list[Row]:
    """The same served request under fresh ids: only the engine's record gives it away."""
    again = replace(calls(rows, kind="extract")[0], call_id="new", logical_id="Lnew")
    return [*rows, begin_of(again), again]


def retry_dropped(rows: list[Row]) -> list[Row]:
    gone = calls(rows, status=429)[0].call_id
    return [r for r in rows if getattr(r, "call_id", None) != gone]


def late_call(rows: list[Row]) -> list[Row]:
    late = new_call("late", phase=None, bucket="unattributed", start_s=1e6)
    return [*rows, begin_of(late), late]


def overlapping(rows: list[Row]) -> list[Row]:
    first = next(r for r in rows if isinstance(r, Window) and r.phase == "construction")
    return [*rows, replace(first, start_s=first.start_s + 0.01, unit="again")]


def drop_row(kind: type[Row]) -> Doctor:
    def doctor(rows: list[Row]) -> list[Row]:
        index = next(i for i, r in enumerate(rows) if isinstance(r, kind))
        return rows[:index] + rows[index + 1 :]

    return doctor


def moved_both(rows: list[Row]) -> list[Row]:
    """A construction call booked to retrieval in both of its rows."""
    victim = calls(rows, kind="extract")[0].call_id
    return [
        replace(r, phase="retrieval", **({"stage": "retrieve"} if isinstance(r, Call) else {}))
        if isinstance(r, Call | CallBegin) and r.call_id == victim
        else r
        for r in rows
    ]


def other_body(rows: list[Row]) -> list[Row]:
    return edit(lambda r: is_call(r, logical_id="Lretry", attempt=1), request_hash="other")(rows)


FAULTS: dict[str, tuple[str, Doctor]] = {
    "double count": ("R1", double),
    "double count under fresh ids": ("R1", booked_again),
    "retry dropped": ("R1", retry_dropped),
    "retry with another body": ("R1", other_body),
    "end without begin": ("R1", drop_row(CallBegin)),
    "missing usage as 0": ("R2", edit(lambda r: is_call(r, status=429), input_tokens=0)),
    "reply counted as 0": ("R2", edit(lambda r: is_call(r, kind="answer"), output_tokens=0)),
    "cache counted twice": ("R3", edit(lambda r: is_call(r, kind="extract"), cache_read_tokens=99)),
    "usage against engine": ("R4", edit(lambda r: is_call(r, kind="decide"), output_tokens=11)),
    "latency below zero": ("R5", edit(lambda r: is_call(r, kind="decide"), latency_s=-1.0)),
    "first token after the end": ("R5", edit(lambda r: is_call(r, kind="decide"), ttft_s=9.0)),
    "overlapping windows": ("R5", overlapping),
    "joules without a counter": ("R6", edit(lambda r: isinstance(r, Window), energy_j=5.0)),
    "late call": ("R7", late_call),
    "unit dropped": ("R8", drop_row(Unit)),
    "question dropped": ("R8", drop_row(Query)),
    "failure not listed": ("R8", drop_row(Failure)),
    "question twice": ("R8", lambda rows: [*rows, next(r for r in rows if isinstance(r, Query))]),
    "index built in a question": (
        "R9",
        edit(lambda r: is_call(r, kind="embed-query"), kind="embed-write"),
    ),
    "seed missing": ("R10", edit(lambda r: is_call(r, kind="answer"), seed=None)),
    "call moved on its end row": (
        "R11",
        edit(lambda r: is_call(r, kind="extract"), phase="retrieval", stage="retrieve"),
    ),
    "call moved on both rows": ("R11", moved_both),
    "unknown call reattributed": ("R11", insert(moved("nobody", "retrieval"))),
}


def test_an_honest_run_passes(tmp_path: Path) -> None:
    checks = check_run(agentmem.load(write_run(tmp_path / "r")))
    assert [c.rule for c in checks] == [f"R{n}" for n in range(1, 12)]
    assert failed(checks) == ()
    assert {c.rule for c in checks if c.ok is None} == {"R10"}
    assert all(c.detail for c in checks)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(tmp_path: Path, name: str) -> None:
    rule, doctor = FAULTS[name]
    checks = check_run(agentmem.load(write_run(tmp_path / "r", doctor)))
    assert rule in {c.rule for c in failed(checks)}, [c for c in checks if c.ok is False]


def test_a_reattributed_call_is_no_fault(tmp_path: Path) -> None:
    tool_call = moved("c0001", "retrieval")
    checks = check_run(agentmem.load(write_run(tmp_path / "r", insert(tool_call))))
    assert failed(checks) == ()


def test_storing_nothing_is_no_accounting_fault(tmp_path: Path) -> None:
    def nothing(rows: list[Row]) -> list[Row]:
        return [replace(r, added=0, updated=0) if isinstance(r, Unit) else r for r in rows]

    checks = check_run(agentmem.load(write_run(tmp_path / "r", nothing)))
    assert failed(checks) == ()


def test_every_repeat_has_all_units_and_questions(tmp_path: Path) -> None:
    def second(rows: list[Row]) -> list[Row]:
        """The same again as a second time round, without the last question of Mem0."""
        again = [
            replace(r, scope=f"{r.scope}-1", repeat=1) for r in rows if isinstance(r, Unit | Query)
        ]
        listed = [replace(r, scope=f"{r.scope}-1") for r in rows if isinstance(r, Failure)]
        gone = [r for r in again if isinstance(r, Query) and r.system == "mem0"][-1]
        return [*rows, *(r for r in again if r is not gone), *listed]

    profile = {"run": {"repeats": 2}, "calls": {"sampling": "fixed"}}
    run = agentmem.load(write_run(tmp_path / "r", second, {"profile": profile}))
    (fault,) = failed(check_run(run))
    assert fault.detail.endswith("repeat 1: 9 of 10 questions")
