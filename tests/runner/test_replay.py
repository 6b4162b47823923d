"""A run from a recording alone equals the run that made it."""

from __future__ import annotations

import dataclasses
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from agentmem import profile
from agentmem.analysis.checks import check_run
from agentmem.analysis.equal import differences
from agentmem.analysis.load import Run, load
from agentmem.cli.main import main
from agentmem.errors import DataError, UsageError
from agentmem.profile import Profile
from agentmem.runner.progress import Silent
from agentmem.runner.run import RunOptions, RunResult, run
from tests.fake import FakeUpstream, Fault
from tests.runner.conftest import WORKLOAD, profile_data
from tests.runner.test_kill import PROFILE, kill_after, rows, start
from tests.runner.test_run import Saboteur


@dataclasses.dataclass
class Deck:
    """Records to one file and replays it, each into a folder of its own."""

    spec: Profile
    fake: FakeUpstream
    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "replies.jsonl"

    def record(self, progress: Silent | None = None) -> Run:
        options = RunOptions(self.folder / "live", record=self.file)
        assert run(self.spec, options, progress or Silent()).status == "complete"
        return load(self.folder / "live")

    def go(self, out: str = "again", spec: Profile | None = None) -> RunResult:
        options = RunOptions(self.folder / out, replay=self.file)
        return run(spec or self.spec, options, Silent())

    def replay(self, out: str = "again") -> Run:
        """With the fake stopped: nobody can be asked."""
        self.fake.stop()
        assert self.go(out).status == "complete"
        return load(self.folder / out)

    def manifest(self, out: str = "again") -> dict[str, Any]:
        return dict(json.loads((self.folder / out / "manifest.json").read_text()))


def brief(fake: FakeUpstream, *systems: str) -> Profile:
    data = profile_data(fake.url, list(systems))
    return profile.parse(data | {"workload": WORKLOAD | {"sessions": 3, "questions": 2}})


@pytest.fixture
def deck(fake: FakeUpstream, tmp_path: Path) -> Deck:
    return Deck(brief(fake, "bm25", "embedrag"), fake, tmp_path)


def test_a_replay_equals_its_recording(deck: Deck) -> None:
    deck.fake.behaviour.cache = "agentmem"
    live, again = deck.record(), deck.replay()
    assert len(again.calls) == len(live.calls) > 10
    assert differences(live, again) == []
    assert not [c for c in check_run(again) if c.ok is False]
    assert again.calls["input_tokens"].sum() == live.calls["input_tokens"].sum()


def test_a_replay_says_what_it_is(deck: Deck) -> None:
    deck.fake.behaviour.cache = "agentmem"
    live, again = deck.record(), deck.replay()
    manifest, recorded = deck.manifest(), deck.manifest("live")
    engine = dict(recorded["engine"], url="", kind="replay")
    assert manifest["engine"] == engine
    assert manifest["replay"]["served"]["kind"] == "foreign"
    assert manifest["replay"]["run"] == recorded["run_id"]
    assert "measure no model" in manifest["notes"][0]
    assert manifest["identity"] != recorded["identity"]
    assert recorded["recording"]["id"] == manifest["replay"]["id"]
    assert live.phases["prefill_s"].notna().any() and not again.phases["prefill_s"].notna().any()
    chats = again.calls[again.calls["endpoint"] == "chat"]
    assert len(chats) and chats["ttft_s"].isna().all()


def test_another_recording_is_another_run(deck: Deck) -> None:
    deck.spec = brief(deck.fake, "bm25")
    deck.record()
    deck.replay()
    lines = deck.file.read_bytes().splitlines(keepends=True)
    deck.file.write_bytes(b"".join(lines[:-1]))
    with pytest.raises(UsageError, match="holds another run"):
        deck.go()


def test_an_unknown_request_ends_the_run(deck: Deck) -> None:
    deck.spec = brief(deck.fake, "bm25")
    deck.record()
    deck.fake.stop()
    other = dataclasses.replace(deck.spec, run=dataclasses.replace(deck.spec.run, seed=8))
    for _ in range(2):
        with pytest.raises(DataError, match=r"replies\.jsonl: no reply is recorded for this chat"):
            deck.go(spec=other)
        assert deck.manifest()["status"] == "incomplete"
    failures = load(deck.folder / "again").failures
    assert failures["kind"].tolist().count("not_recorded") == 2, "asked once per run, no retries"


@pytest.mark.parametrize(
    ("kind", "system", "times"),
    [("truncate", "bm25", 1), ("reset", "no_memory", 1), ("reset", "bm25", 3)],
)
def test_faults_are_replayed_as_they_stood(deck: Deck, kind: Any, system: str, times: int) -> None:
    deck.spec = brief(deck.fake, "bm25")
    saboteur = Saboteur(deck.fake, system, "questions", Fault(kind, endpoint="chat"), times)
    live = deck.record(saboteur)
    assert differences(live, deck.replay()) == []
    assert rows_of(live, "rolled_back") == min(times, 2) * (system != "no_memory")


def rows_of(made: Run, kind: str) -> int:
    return made.failures["kind"].tolist().count(kind)


def test_error_replies_are_replayed(deck: Deck) -> None:
    fault = Fault("status", status=503, endpoint="chat")
    live = deck.record(Saboteur(deck.fake, "bm25", "questions", fault))
    again = deck.replay()
    assert differences(live, again) == []
    assert 503 in again.calls["status"].tolist()
    assert rows_of(again, "upstream_error") == rows_of(live, "upstream_error") == 1


def test_fewer_systems_can_be_replayed(deck: Deck) -> None:
    live = deck.record()
    deck.fake.stop()
    one = dataclasses.replace(deck.spec, systems=("embedrag",))
    assert deck.go(spec=one).status == "complete"
    again = load(deck.folder / "again")
    answers = [r.queries[r.queries["system"] == "embedrag"]["answer"] for r in (live, again)]
    assert answers[0].tolist() == answers[1].tolist()


@pytest.fixture
def written(fake: FakeUpstream, tmp_path: Path) -> Path:
    """The profile as a file, for runs in a process of their own."""
    path = tmp_path / "killed.toml"
    table = "\n".join(f"{k} = {json.dumps(v)}" for k, v in WORKLOAD.items())
    path.write_text(PROFILE.format(url=fake.url, workload=table))
    return path


def test_a_killed_recording_is_resumed_and_replayed(
    written: Path, fake: FakeUpstream, tmp_path: Path
) -> None:
    file, out, again = tmp_path / "replies.jsonl", tmp_path / "live", tmp_path / "again"
    kill_after(written, out, 60, signal.SIGKILL, "--record", str(file))
    with file.open("ab") as torn:
        torn.write(b'{"scope":"bm25.')
    assert start(written, out).wait(60) == 2, "going on without --record would leave a hole"
    assert start(written, out, "--record", str(file)).wait(60) == 0
    fake.stop()
    kill_after(written, again, 60, signal.SIGKILL, "--replay", str(file))
    assert rows(again) >= 60
    assert start(written, again, "--replay", str(file)).wait(60) == 0
    live, replayed = load(out), load(again)
    assert differences(live, replayed) == []
    assert not [c for c in check_run(replayed) if c.ok is False]


def test_recordings_are_not_written_over(deck: Deck) -> None:
    deck.spec = brief(deck.fake, "bm25")
    deck.record()
    with pytest.raises(UsageError, match="holds something already"):
        run(deck.spec, RunOptions(deck.folder / "new", record=deck.file), Silent())
    assert not run(deck.spec, RunOptions(deck.folder / "live", record=deck.file), Silent()).fresh
    run(deck.spec, RunOptions(deck.folder / "plain"), Silent())
    with pytest.raises(UsageError, match="complete without --record"):
        run(deck.spec, RunOptions(deck.folder / "plain", record=deck.folder / "f"), Silent())


@pytest.mark.parametrize(
    ("args", "code", "line"),
    [
        (["--replay", "gone.jsonl"], 3, "cannot read the recording"),
        (["--replay", "f", "--record", "g"], 2, "exclude each other"),
        (["--record", "no/such/folder/f"], 2, "no folder no/such/folder"),
        (["--replay", "f", "--replay-mode", "through-engine"], 2, "not available yet"),
        (["--replay-mode", "through-engine"], 2, "goes with --replay"),
    ],
)
def test_refusals_are_one_line(
    args: list[str], code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "quickstart", *args]) == code
    said = capsys.readouterr().err
    assert line in said and said.count("\n") == 1


def test_the_end_of_an_unknown_request_on_the_command_line(
    deck: Deck, written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(deck.folder / "run")
    assert main(["run", str(written), "--out", out, "--quiet", "--record", str(deck.file)]) == 0
    deck.fake.stop()
    capsys.readouterr()
    shorter = ["--set", "answer.max_tokens=47"]
    args = ["run", str(written), "--quiet", "--replay", str(deck.file), *shorter]
    assert main([*args, "--out", str(deck.folder / "other")]) == 3
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "no reply is recorded for this chat request" in said


def test_a_recording_without_facts(deck: Deck) -> None:
    deck.file.write_text('{"agentmem_recording":1,"id":"x"}\n')
    with pytest.raises(DataError, match="does not say which model"):
        deck.go()


def test_a_replay_through_an_engine_is_refused(fake: FakeUpstream, tmp_path: Path) -> None:
    spec = profile.parse(profile_data(fake.url, ["bm25"]))
    options = RunOptions(tmp_path / "x", replay=tmp_path / "f", replay_mode="through-engine")
    with pytest.raises(UsageError, match="not available yet"):
        run(spec, options, Silent())
