"""Native answers: each call ends in its true phase, and time follows the calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentmem import profile
from agentmem.analysis.checks import check_run
from agentmem.analysis.load import Run, load
from agentmem.memory import Called
from agentmem.runner.classify import tiles, unmatched, verdicts
from agentmem.runner.progress import Silent
from agentmem.runner.run import RunOptions, run
from tests.fake import FakeUpstream, Fault
from tests.runner.conftest import profile_data
from tests.runner.small_systems import looping
from tests.telemetry.rows import make_call

QUESTIONS = 4
SAID = '(Called("generation", index=1), Called("construction", index=-1, becomes="reflect"))'


@pytest.fixture
def systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "systems"
    monkeypatch.setenv("AGENTMEM_SYSTEMS", str(folder))
    return folder


def go(fake: FakeUpstream, out: Path, **tables: Any) -> Run:
    spec = profile.parse(profile_data(fake.url, ["looping"], **tables))
    assert run(spec, RunOptions(out), Silent()).status == "complete"
    return load(out)


def phases_of(result: Run) -> dict[tuple[str, str], int]:
    mine = result.calls[(result.calls["system"] == "looping")]
    return mine.groupby(["phase", "kind"]).size().to_dict()


def faults(result: Run) -> list[str]:
    return [f"{c.rule}: {c.detail} {c.faults}" for c in check_run(result) if c.ok is False]


def test_calls_end_where_the_adapter_says(
    systems: Path, fake: FakeUpstream, tmp_path: Path
) -> None:
    looping(systems, SAID)
    fake.behaviour.first_token_s = 0.02
    result = go(fake, tmp_path / "run")
    assert phases_of(result) == {
        ("retrieval", "unknown"): QUESTIONS,
        ("retrieval", "embed-query"): QUESTIONS,
        ("generation", "answer"): QUESTIONS,
        ("construction", "reflect"): QUESTIONS,
    }
    assert faults(result) == []
    rows = result.queries[result.queries["system"] == "looping"]
    assert rows["native_answer"].all() and (rows["status"] == "ok").all()
    assert (rows["retrieval_s"] >= 0.02).all() and (rows["generation_s"] >= 0.02).all()
    answers = result.windows[result.windows["unit"] == rows["question_id"].iloc[0]]
    answers = answers[answers["system"] == "looping"]
    assert answers["phase"].tolist() == ["retrieval", "generation", "construction", "generation"]
    ends, starts = answers["end_s"].tolist(), answers["start_s"].tolist()
    assert ends[:-1] == starts[1:], "the windows of an answer leave no gap and never overlap"
    assert result.manifest["lanes"]["looping"] == {"answers": "native", "overlap": False}


def test_without_a_word_the_last_call_is_the_answer(
    systems: Path, fake: FakeUpstream, tmp_path: Path
) -> None:
    looping(systems)
    result = go(fake, tmp_path / "run")
    assert phases_of(result)[("generation", "answer")] == QUESTIONS
    assert phases_of(result)[("retrieval", "unknown")] == 2 * QUESTIONS
    assert faults(result) == []


def test_the_harness_lane_asks_the_reader(
    systems: Path, fake: FakeUpstream, tmp_path: Path
) -> None:
    looping(systems)
    result = go(fake, tmp_path / "run", answer={"lane": "harness"})
    rows = result.queries[result.queries["system"] == "looping"]
    assert not rows["native_answer"].any() and (rows["k"] == 10).all()
    assert result.manifest["lanes"]["looping"]["answers"] == "harness"
    assert (rows["versions_behind"] == 0).all() and (rows["units_before"] == 5).all()


def test_a_name_for_no_call_is_put_on_record(
    systems: Path, fake: FakeUpstream, tmp_path: Path
) -> None:
    looping(systems, '(Called("generation", kind="no-such"),)')
    result = go(fake, tmp_path / "run")
    assert result.failures["kind"].tolist() == ["unclassified"] * QUESTIONS
    assert faults(result) == []


def test_a_broken_native_answer_is_asked_again(
    systems: Path, fake: FakeUpstream, tmp_path: Path
) -> None:
    looping(systems, SAID)

    class Breaker(Silent):
        def begin(self, system: str, phase: str, total: int) -> None:
            if (system, phase) == ("looping", "questions") and not fake.behaviour.first_token_s:
                fake.behaviour.first_token_s = 0.001
                fake.fail(Fault("reset", endpoint="embedding"), 1)

    spec = profile.parse(profile_data(fake.url, ["looping"]))
    assert run(spec, RunOptions(tmp_path / "run"), Breaker()).status == "complete"
    result = load(tmp_path / "run")
    assert "rolled_back" in result.failures["kind"].tolist()
    assert faults(result) == []
    live = result.calls[result.calls["bucket"] == "measured"]
    assert (live[live["system"] == "looping"]["phase"] == "generation").sum() == QUESTIONS


def chat(name: str, start_s: float, **changes: Any) -> Any:
    values = {"logical_id": name, "start_s": start_s, "phase": "retrieval", "kind": "unknown"}
    return make_call(name, **(values | changes))


def test_retries_go_with_their_call_and_failed_calls_are_no_answer() -> None:
    calls = [
        chat("a", 1.0),
        chat("b", 2.0, status=500, outcome="http_error"),
        chat("b2", 3.0, logical_id="b", attempt=1),
        chat("c", 4.0, status=500, outcome="http_error"),
    ]
    assert [v.phase for v in verdicts(calls, ())] == [
        "retrieval", "generation", "generation", "retrieval",
    ]  # fmt: skip
    picked = verdicts(calls, (Called("construction", index=0), Called("generation", call_id="c")))
    assert [v.phase for v in picked] == ["construction", "retrieval", "retrieval", "generation"]
    assert unmatched(calls, (Called("generation", index=3), Called("retrieval"))) == [
        Called("generation", index=3)
    ]


def test_time_is_cut_without_gap_or_overlap() -> None:
    plan, answer, after = chat("a", 1.0), chat("b", 2.0), chat("c", 2.2)
    found = verdicts(
        [plan, answer, after], (Called("generation", index=1), Called("construction", index=2))
    )
    cut = tiles(0.5, 3.0, found)
    assert [(t.phase, t.start_s, t.end_s) for t in cut] == [
        ("retrieval", 0.5, 2.0), ("generation", 2.0, 2.5), ("construction", 2.5, 2.7),
        ("generation", 2.7, 3.0),
    ]  # fmt: skip
