"""Questions while a system constructs: exact attribution, true costs, staleness, resumption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentmem import profile
from agentmem.analysis.checks import check_run
from agentmem.analysis.load import Run, load
from agentmem.runner.progress import Silent
from agentmem.runner.run import RunOptions, run
from tests.fake import FakeUpstream, Fault
from tests.runner.conftest import profile_data
from tests.runner.small_systems import busy

SLOW_S = 0.15
"""What a construction's model call takes: long enough for questions to come in between."""


@pytest.fixture(autouse=True)
def systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy(tmp_path / "systems")
    monkeypatch.setenv("AGENTMEM_SYSTEMS", str(tmp_path / "systems"))


def go(fake: FakeUpstream, out: Path, overlap: bool = True, **tables: Any) -> Run:
    tables["run"] = {"overlap": overlap, "reference_rows": False} | tables.pop("run", {})
    spec = profile.parse(profile_data(fake.url, ["busy"], **tables))
    assert run(spec, RunOptions(out), Silent()).status == "complete"
    return load(out)


def faults(result: Run) -> list[str]:
    return [f"{c.rule}: {c.detail} {c.faults}" for c in check_run(result) if c.ok is False]


def test_questions_are_asked_while_units_are_constructed(
    fake: FakeUpstream, tmp_path: Path
) -> None:
    fake.behaviour.first_token_s = SLOW_S
    result = go(fake, tmp_path / "run")
    assert faults(result) == []
    spans = result.windows
    building = spans[spans["phase"] == "construction"]
    asking = spans[spans["phase"] == "retrieval"]
    meanwhile = [
        ((building["start_s"] < a.end_s) & (building["end_s"] > a.start_s)).any()
        for a in asking.itertuples()
    ]
    assert any(meanwhile), "no question came while a unit was constructed"
    calls = result.calls.groupby(["operation", "phase", "endpoint"]).size().to_dict()
    assert calls == {
        ("construct", "construction", "chat"): 5,
        ("retrieve", "retrieval", "embedding"): 4,
        ("generate", "generation", "chat"): 4,
    }
    assert result.queries["units_before"].min() < 5
    assert result.manifest["lanes"]["busy"]["overlap"] is True


def test_bundled_systems_overlap_and_add_up(fake: FakeUpstream, tmp_path: Path) -> None:
    fake.behaviour.embed_s = SLOW_S
    data = profile_data(
        fake.url, ["bm25", "embedrag"], run={"overlap": True, "reference_rows": False}
    )
    assert run(profile.parse(data), RunOptions(tmp_path / "run"), Silent()).status == "complete"
    result = load(tmp_path / "run")
    assert faults(result) == []
    calls = result.calls[result.calls["endpoint"] == "embedding"]
    assert calls.groupby(["system", "operation", "phase"]).size().to_dict() == {
        ("embedrag", "construct", "construction"): 5,
        ("embedrag", "retrieve", "retrieval"): 4,
    }
    dense = result.queries[result.queries["system"] == "embedrag"]
    assert (
        dense["units_before"].min() < 5 and (dense["version_read"] >= dense["units_before"]).all()
    )
    assert all(lane["overlap"] for lane in result.manifest["lanes"].values())


def test_costs_of_work_at_the_same_time_are_known_in_sum_only(
    fake: FakeUpstream, tmp_path: Path
) -> None:
    fake.behaviour.first_token_s = SLOW_S
    spans = go(fake, tmp_path / "run").windows
    work = spans[spans["bucket"] == "measured"]
    for one in work.itertuples():
        others = work[work.index != one.Index]
        shared = ((others["start_s"] < one.end_s) & (others["end_s"] > one.start_s)).any()
        if one.worker_cpu_s == one.worker_cpu_s:  # known
            assert not shared
    together = spans[spans["bucket"] == "unattributed"]
    assert len(together) and together["worker_cpu_s"].notna().all()


def test_staleness_counts_the_versions_between(fake: FakeUpstream, tmp_path: Path) -> None:
    result = go(fake, tmp_path / "run", overlap=False)
    assert faults(result) == []
    rows = result.queries
    assert (rows["version_read"] == 5).all() and (rows["versions_behind"] == 0).all()
    assert (rows["units_before"] == 5).all()
    assert result.calls["operation"].notna().any(), "the URL's operation is on record anyway"


@pytest.mark.parametrize("endpoint", ["chat", "embedding"])
def test_a_broken_call_takes_both_back(fake: FakeUpstream, tmp_path: Path, endpoint: Any) -> None:
    class Breaker(Silent):
        def begin(self, system: str, phase: str, total: int) -> None:
            if phase == "construction" and not fake.behaviour.first_token_s:
                fake.behaviour.first_token_s = 0.05
                fake.fail(Fault("reset", endpoint=endpoint), 1)

    data = profile_data(fake.url, ["busy"], run={"overlap": True, "reference_rows": False})
    assert run(profile.parse(data), RunOptions(tmp_path / "run"), Breaker()).status == "complete"
    result = load(tmp_path / "run")
    assert "rolled_back" in result.failures["kind"].tolist()
    assert faults(result) == []
    assert len(result.units) == 5 and len(result.queries) == 4
    live = result.calls[result.calls["bucket"] == "measured"]
    assert live.groupby("phase").size().to_dict() == {
        "construction": 5, "retrieval": 4, "generation": 4,
    }  # fmt: skip


def test_a_worker_that_dies_over_a_question_takes_the_construction_back(
    fake: FakeUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = busy(tmp_path / "mortal") / "adapter.py"
    fragile = "try:\n            self.embed(question, 'retrieve')\n"
    fragile += "        except OSError:\n            os._exit(3)\n"
    whole = adapter.read_text()
    adapter.write_text(whole.replace('self.embed(question, "retrieve")\n', fragile))
    monkeypatch.setenv("AGENTMEM_SYSTEMS", str(tmp_path / "mortal"))
    fake.behaviour.first_token_s = SLOW_S

    class Breaker(Silent):
        def begin(self, system: str, phase: str, total: int) -> None:
            if phase == "construction" and not fake.behaviour.embed_s:
                fake.behaviour.embed_s = 0.001
                fake.fail(Fault("status", status=400, endpoint="embedding"), 1)

    data = profile_data(fake.url, ["busy"], run={"overlap": True, "reference_rows": False})
    assert run(profile.parse(data), RunOptions(tmp_path / "run"), Breaker()).status == "complete"
    result = load(tmp_path / "run")
    assert faults(result) == []
    assert "died" in result.failures["kind"].tolist()
    assert (result.units["status"] == "ok").all() and (result.queries["status"] == "ok").all()
    assert len(result.units) == 5 and len(result.queries) == 4


def test_an_interrupted_run_goes_on(fake: FakeUpstream, tmp_path: Path) -> None:
    fake.behaviour.first_token_s = SLOW_S

    class Stopper(Silent):
        def step(self, system: str, phase: str, done: int) -> None:
            if (phase, done) == ("construction", 3):
                raise KeyboardInterrupt

    data = profile_data(fake.url, ["busy"], run={"overlap": True, "reference_rows": False})
    with pytest.raises(KeyboardInterrupt):
        run(profile.parse(data), RunOptions(tmp_path / "run"), Stopper())
    result = go(fake, tmp_path / "run")
    assert faults(result) == []
    assert len(result.units) == 5 and len(result.queries) == 4
