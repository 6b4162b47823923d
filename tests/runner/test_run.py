"""The run loop against the fake upstream: complete, on the bill to the token, resumable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest

from agentmem import profile
from agentmem.analysis.checks import check_run
from agentmem.analysis.equal import differences
from agentmem.analysis.load import Run, load
from agentmem.analysis.writepath import write_path
from agentmem.errors import EngineError, UsageError
from agentmem.profile import Profile
from agentmem.runner.progress import Silent
from agentmem.runner.run import RunOptions, run
from tests.fake import FakeUpstream, Fault
from tests.runner.conftest import profile_data


def go(spec: Profile, out: Path) -> str:
    return run(spec, RunOptions(out), Silent()).status


def test_a_run_is_complete_and_on_the_bill(
    small: Profile, fake: FakeUpstream, tmp_path: Path
) -> None:
    assert go(small, tmp_path / "run") == "complete"
    result = load(tmp_path / "run")
    assert not [c for c in check_run(result) if c.ok is False]
    assert (result.units["status"] == "ok").all()
    assert len(result.units) == 3 * 5
    assert len(result.queries) == 5 * 4
    assert not result.failures["kind"].tolist()
    probes = 2  # one embedding for the width, one chat to warm up: sent past the meter
    assert len(result.calls) == len(fake.bill.of()) - probes
    _meters_saw_the_workers(result)


def _meters_saw_the_workers(result: Run) -> None:
    """A set-up's CPU time is its worker's life so far; bytes are known however short the work."""
    spans = result.windows[result.windows["bucket"] != "harness"]
    setup, work = spans[spans["bucket"] == "setup"], spans[spans["bucket"] == "measured"]
    assert len(setup) == 3 and (setup["worker_cpu_s"] > 0.01).all()
    assert work["worker_write_bytes"].notna().all()
    told = write_path(result).set_index("system")
    built = result.phases[result.phases["phase"] == "construction"]
    assert (built["wall_s"] < 2.0).any(), "some were shorter than the sampler could tell"
    by_window = work[work["phase"] == "construction"].groupby("system")["worker_write_bytes"].sum()
    assert (told["written_bytes"] == by_window[told.index].astype(float)).all()
    charged = result.phases[(result.phases["bucket"] == "setup")]
    assert (charged["cpu_s"] > 0.01).all() and (charged["energy_j"] > 0.02).all()


def test_the_same_command_shows_a_finished_run_again(
    small: Profile, fake: FakeUpstream, tmp_path: Path
) -> None:
    go(small, tmp_path / "run")
    before = (tmp_path / "run" / "journal.jsonl").read_bytes()
    again = run(small, RunOptions(tmp_path / "run"), Silent())
    assert (again.status, again.fresh) == ("complete", False)
    assert (tmp_path / "run" / "journal.jsonl").read_bytes() == before


def test_two_runs_of_one_profile_are_equal(small: Profile, tmp_path: Path) -> None:
    go(small, tmp_path / "one")
    go(small, tmp_path / "two")
    assert differences(load(tmp_path / "one"), load(tmp_path / "two")) == []


def test_another_profile_may_not_write_there(
    small: Profile, fake: FakeUpstream, tmp_path: Path
) -> None:
    go(small, tmp_path / "run")
    other = profile.parse(profile_data(fake.url, ["bm25"]))
    with pytest.raises(UsageError, match="holds another run"):
        go(other, tmp_path / "run")


class Saboteur(Silent):
    """Plans a failure when a system enters a phase."""

    def __init__(
        self, fake: FakeUpstream, system: str, phase: str, fault: Fault, times: int = 1
    ) -> None:
        self.fake, self.at, self.fault, self.times = fake, (system, phase), fault, times

    def begin(self, system: str, phase: str, total: int) -> None:
        if (system, phase) == self.at:
            self.fake.fail(self.fault, self.times)
            self.at = ("", "")


@pytest.mark.parametrize("kind", ["reset", pytest.param("truncate", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("system", "phase", "endpoint"),
    [
        ("embedrag", "construction", "embedding"),
        pytest.param("embedrag", "questions", "embedding", marks=pytest.mark.slow),
        ("bm25", "questions", "chat"),
        pytest.param("no_memory", "questions", "chat", marks=pytest.mark.slow),
    ],
)
def test_work_with_a_broken_call_is_done_again(
    small: Profile,
    fake: FakeUpstream,
    tmp_path: Path,
    kind: Literal["reset", "truncate"],
    system: str,
    phase: str,
    endpoint: Literal["chat", "embedding"],
) -> None:
    go(small, tmp_path / "calm")
    saboteur = Saboteur(fake, system, phase, Fault(kind, endpoint=endpoint))
    assert run(small, RunOptions(tmp_path / "rough"), saboteur).status == "complete"
    calm, rough = load(tmp_path / "calm"), load(tmp_path / "rough")
    assert not [c for c in check_run(rough) if c.ok is False]
    if system != "no_memory":
        assert rough.failures["kind"].tolist()[-1] == "rolled_back"
        assert (rough.calls["bucket"] == "wasted").any(), "the broken call stays on the bill"
        assert differences(calm, rough) == []


def test_a_call_that_always_breaks_stands_as_a_failure(
    small: Profile, fake: FakeUpstream, tmp_path: Path
) -> None:
    saboteur = Saboteur(fake, "bm25", "questions", Fault("reset", endpoint="chat"), times=3)
    assert run(small, RunOptions(tmp_path / "run"), saboteur).status == "complete"
    result = load(tmp_path / "run")
    bm25 = result.queries[result.queries["system"] == "bm25"]
    assert bm25["status"].tolist() == ["failed", "ok", "ok", "ok"]
    assert not [c for c in check_run(result) if c.ok is False]


def test_a_dead_engine_is_one_clear_line(small: Profile, tmp_path: Path) -> None:
    dead = profile.parse(profile_data("http://127.0.0.1:9/v1", ["bm25"]))
    with pytest.raises(
        EngineError, match=r"cannot reach a model server at http://127\.0\.0\.1:9/v1"
    ):
        go(dead, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_model_the_server_does_not_have(fake: FakeUpstream, tmp_path: Path) -> None:
    data = profile_data(fake.url, ["bm25"])
    data["engine"]["model"] = "other"
    with pytest.raises(EngineError, match=r"does not serve 'other' \(it has fake-chat"):
        go(profile.parse(data), tmp_path / "run")


def test_the_manifest_says_what_ran(small: Profile, tmp_path: Path) -> None:
    go(small, tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["status"] == "complete"
    assert manifest["order"] == ["long_context", "bm25", "embedrag"]
    assert manifest["workload"]["params"]["unit"] == "session"
    assert manifest["energy"]["w_per_core"] == {"low": 2.0, "mid": 4.0, "high": 8.0}
    assert manifest["systems"]["bm25"]["taxonomy"]["paradigm"].startswith("II")
