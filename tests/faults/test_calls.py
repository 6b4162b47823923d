"""Every kind of model call meets every way of failing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from agentmem.analysis.equal import differences
from agentmem.analysis.load import Run
from tests.faults.conftest import MakeTrial, script
from tests.faults.stage import FAULTS, KINDS, Said, Trial, lost, nth
from tests.faults.table import add
from tests.systems.mem0_bench import READY, REASON

HOST_KINDS = ("embed-write", "embed-query", "answer")
BROKEN = ("time-out", "truncated stream", "connection reset")
"""What counts as the model server's going away: work is rolled back and done again."""
SOME = [
    ("extract", "truncated stream"),
    ("decide", "429"),
    ("embed-write", "connection reset"),
    ("embed-write", "malformed JSON"),
    ("embed-query", "time-out"),
    ("answer", "500"),
    ("answer", "context overflow"),
]
ALL = [(kind, fault) for kind in KINDS for fault in FAULTS if (kind, fault) not in SOME]


def meet(trial: Trial, calm: Run, kind: str, fault: str) -> Said:
    """One fault at the second call of its kind; holds what must hold whatever happens."""
    trial.fake.behaviour.on_chat = script(trial.systems[0])
    trial.fake.fail(replace(FAULTS[fault], fits=nth(kind, 1)))
    told = trial.go()
    run = trial.load()
    assert told.code == 0
    assert trial.broken() == []
    assert run.manifest["status"] == "complete"
    assert len(run.units) == len(calm.units)
    assert len(run.queries) == len(calm.queries)
    unserved = run.calls[(run.calls["outcome"] != "ok")]
    assert len(unserved) == 1, "the broken attempt is on the bill"
    assert set(unserved["kind"]) == {kind}
    wasted = int((run.calls["bucket"] == "wasted").sum())
    again = "rolled_back" in set(run.failures["kind"])
    retried = bool((run.calls["attempt"] > 0).any())
    happened = f"rolled back, {wasted} calls wasted, done again" if again else "listed as failed"
    if retried and not again:
        happened = "sent again by the system's own client"
    elif not again and lost(run) == "nothing":
        happened = "the system mended it"
    line = told.lines[-1] if told.lines else "(none needed)"
    add(f"{trial.systems[0]} {kind}", fault, happened, told.code, lost(run), line)
    return told


def check_host(trial: Trial, calm: Run, kind: str, fault: str) -> None:
    told = meet(trial, calm, kind, fault)
    run = trial.load()
    if fault in BROKEN:
        assert lost(run) == "nothing"
        assert differences(calm, run) == []
        assert [line for line in told.lines if "rolled_back" in line]
    elif trial.systems[0] == "embedrag" and fault == "context overflow" and kind != "answer":
        assert lost(run) == "nothing", "embedded in halves"
    else:
        what = "question" if kind in ("embed-query", "answer") else "unit"
        assert lost(run) == f"1 {what}, listed as failed"
        assert len(told.lines) == 1


@pytest.mark.parametrize(("kind", "fault"), SOME)
def test_some_faults(
    kind: str, fault: str, trial: MakeTrial, calm_of: Callable[[str], Run]
) -> None:
    check_host(trial(), calm_of("scribe"), kind, fault)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "fault"), ALL)
def test_other_faults(
    kind: str, fault: str, trial: MakeTrial, calm_of: Callable[[str], Run]
) -> None:
    check_host(trial(), calm_of("scribe"), kind, fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", HOST_KINDS)
def test_embedrag(kind: str, fault: str, trial: MakeTrial, calm_of: Callable[[str], Run]) -> None:
    check_host(trial(systems=("embedrag",)), calm_of("embedrag"), kind, fault)


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.skipif(not READY, reason=REASON)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", KINDS)
def test_mem0(kind: str, fault: str, trial: MakeTrial, calm_of: Callable[[str], Run]) -> None:
    one, calm = trial(systems=("mem0",)), calm_of("mem0")
    meet(one, calm, kind, fault)
    if fault in BROKEN:
        assert lost(one.load()) == "nothing"
        assert differences(calm, one.load()) == []
