"""Repeats, running orders, caches, contention, idle energy, and time-outs that are given room."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentmem import profile
from agentmem.analysis.checks import check_run
from agentmem.analysis.equal import differences
from agentmem.analysis.load import Run, load
from agentmem.analysis.validity import check_validity
from agentmem.profile import Profile
from agentmem.records import Contention, Window
from agentmem.runner import quality, rounds
from agentmem.runner.progress import Silent
from agentmem.runner.run import RunOptions, run
from tests.fake import FakeUpstream, Fault
from tests.runner.conftest import profile_data
from tests.runner.small_systems import impatient
from tests.telemetry.rows import make_window


def parsed(fake: FakeUpstream, systems: list[str], **tables: Any) -> Profile:
    tables["run"] = {"reference_rows": False} | tables.pop("run", {})
    return profile.parse(profile_data(fake.url, systems, **tables))


def go(spec: Profile, out: Path, progress: Silent | None = None) -> Run:
    assert run(spec, RunOptions(out), progress or Silent()).status == "complete"
    return load(out)


def faults(result: Run) -> list[str]:
    return [f"{c.rule}: {c.detail} {c.faults}" for c in check_run(result) if c.ok is False]


def test_repeats_are_interleaved_and_turned_round(fake: FakeUpstream, tmp_path: Path) -> None:
    spec = parsed(fake, ["bm25", "embedrag"], run={"repeats": 2, "order": "counterbalanced"})
    result = go(spec, tmp_path / "run")
    assert faults(result) == []
    assert list(dict.fromkeys(result.windows["scope"])) == [
        "bm25.life-0", "embedrag.life-0", "embedrag.life-0.r1", "bm25.life-0.r1",
    ]  # fmt: skip
    assert result.manifest["schedule"] == [
        ["bm25", "life-0", 0], ["embedrag", "life-0", 0],
        ["embedrag", "life-0", 1], ["bm25", "life-0", 1],
    ]  # fmt: skip
    for table, size in ((result.units, 5), (result.queries, 4)):
        assert (table.groupby(["system", "repeat"]).size() == size).all()
    assert set(result.calls["repeat"]) == {0, 1} == set(result.footprints["repeat"])
    stores = {p.name for p in (tmp_path / "run" / "stores" / "bm25").iterdir()}
    assert stores == {"life-0", "life-0.r1"}
    answers = result.queries.pivot(index=["system", "question_id"], columns="repeat")["answer"]
    assert (answers[0] == answers[1]).all(), "greedy repeats of one model say the same"


def test_a_killed_repeat_goes_on_where_it_stopped(fake: FakeUpstream, tmp_path: Path) -> None:
    spec = parsed(fake, ["bm25"], run={"repeats": 2})
    calm = go(spec, tmp_path / "calm")

    class Stopper(Silent):
        def step(self, system: str, phase: str, done: int) -> None:
            self.steps = getattr(self, "steps", 0) + 1
            if self.steps == 14:  # in the construction of the second repeat
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(spec, RunOptions(tmp_path / "run"), Stopper())
    resumed = go(spec, tmp_path / "run")
    assert differences(calm, resumed) == [] and faults(resumed) == []


@pytest.mark.parametrize(("cache", "tenants"), [("cold", 2), ("warm", 1)])
def test_a_cache_is_cold_or_warm(
    fake: FakeUpstream, tmp_path: Path, cache: str, tenants: int
) -> None:
    spec = parsed(fake, ["embedrag"], run={"repeats": 2, "cache": cache})
    rows = rounds.turns(spec, ["embedrag"], ["life-0"])
    assert len({t.tenant(spec, "run") for t in rows}) == tenants
    result = go(spec, tmp_path / "run")
    assert faults(result) == []
    assert result.manifest["cache"] == cache
    passes = result.calls.groupby("bucket").size().to_dict()
    assert passes["measured"] == 2 * passes.get("setup", passes["measured"] // 2)
    assert ("setup" in passes) == (cache == "warm")
    assert len(result.units) == 2 * 5 and len(result.queries) == 2 * 4


def test_shuffled_orders_differ_and_repeat() -> None:
    spec = profile.parse({"run": {"order": "shuffled", "repeats": 6}})
    names = ["a", "b", "c", "d"]
    drawn = rounds.orders(spec, names, 6)
    assert drawn == rounds.orders(spec, names, 6)
    assert len({tuple(order) for order in drawn}) > 1
    assert all(sorted(order) == names for order in drawn)


def test_contention_is_summed_and_flagged(small: Profile, tmp_path: Path) -> None:
    result = go(small, tmp_path / "run")
    found = result.manifest["contention"]
    assert found["limit"] == 0.1
    assert set(found["scopes"]) >= {"bm25.life-0", "embedrag.life-0", "long_context.life-0"}
    assert found["run"]["seconds"] > 0
    (verdict,) = (c for c in check_validity(result) if c.rule == "V9")
    over = bool(found["exceeded"] or found["flagged"])
    assert verdict.ok is not over and "waiting for a core" in verdict.detail
    rows = [r for r in result.journal if isinstance(r, Contention)]
    assert [r.edge for r in rows if r.scope is None] == ["begin", "end"]


def test_the_wait_share_is_of_the_time_wanted() -> None:
    busy = make_window(worker_cpu_s=3.0, worker_wait_s=1.0, engine_cpu_s=None, engine_wait_s=9.0)
    free = make_window(scope="s2", worker_cpu_s=4.0, worker_wait_s=0.0)
    edges = [
        Contention(None, edge, at, stall, None, None, None, 2)  # type: ignore[arg-type]
        for edge, at, stall in (("begin", 0.0, 1.0), ("end", 10.0, 3.0), ("begin", 50.0, 9.0))
    ]
    rows: list[Window | Contention] = [busy, free, *edges]
    found = quality.summary(rows, 0.2)
    assert found["scopes"]["s1"]["wait_share"] == 0.25 and found["flagged"] == ["s1"]
    assert found["run"]["wait_share"] == 0.125 and not found["exceeded"]
    assert found["run"]["stall_share"] == 0.2 and found["run"]["steal_share"] is None
    manifest: dict[str, Any] = {"notes": ["kept", "contention: old"]}
    quality.add_to(manifest, rows, 0.2)
    assert manifest["notes"][0] == "kept" and len(manifest["notes"]) == 2
    assert manifest["notes"][1].endswith("above it: s1")


def test_the_idle_machine_is_a_row_of_its_own(fake: FakeUpstream, tmp_path: Path) -> None:
    go(parsed(fake, ["bm25"], meters={"idle_s": 0.2}), tmp_path / "run")
    idle = json.loads((tmp_path / "run" / "manifest.json").read_text())["energy"]["idle"]
    assert idle["seconds"] >= 0.2
    assert (idle["energy_j"] is None) == (idle["watts"] is None)


def hung(fake: FakeUpstream, times: int) -> Silent:
    """The upstream takes three seconds over so many calls of a construction."""

    class Hanger(Silent):
        def begin(self, system: str, phase: str, total: int) -> None:
            if phase == "construction" and not fake.behaviour.embed_s:
                fake.behaviour.embed_s = 0.001
                fake.fail(Fault("hang", endpoint="chat", hang_s=3.0), times)

    return Hanger()


@pytest.mark.parametrize("times", [1, 2])
def test_a_unit_whose_client_gave_up_is_done_again_with_more_time(
    fake: FakeUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    impatient(tmp_path / "systems")
    monkeypatch.setenv("AGENTMEM_SYSTEMS", str(tmp_path / "systems"))
    spec = parsed(fake, ["impatient"], limits={"request_timeout_s": 0.5})
    result = go(spec, tmp_path / "run", hung(fake, times))
    assert faults(result) == []
    told = result.failures[result.failures["kind"] == "client_timeout"]["message"].tolist()
    assert "after 0.5 s; rolled back, to be done again with 1 s" in told[0]
    assert len(told) == times
    added = result.units["added"].sum()
    assert added == (5 if times == 1 else 4), "what timed out twice stands as it is"
    assert (result.calls["bucket"] == "wasted").sum() >= 1
    assert (result.calls["outcome"] == "abandoned").sum() == times
