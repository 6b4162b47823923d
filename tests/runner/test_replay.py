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
from tests.runner.test_kill import PROFILE, kill_after, rows
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
    return Deck(brief(fake, "bm25"), fake, tmp_path)


@pytest.fixture(scope="module")
def taped(tmp_path_factory: pytest.TempPathFactory) -> Deck:
    """One recording of two systems for several tests; its server is gone."""
    with FakeUpstream(cache="agentmem") as fake:
        made = Deck(brief(fake, "bm25", "embedrag"), fake, tmp_path_factory.mktemp("taped"))
        made.record()
        made.replay()
    return made


def test_a_replay_equals_its_recording(taped: Deck) -> None:
    live, again = load(taped.folder / "live"), load(taped.folder / "again")
    assert len(again.calls) == len(live.calls) > 10
    assert differences(live, again) == []
    assert not [c for c in check_run(again) if c.ok is False]
    assert again.calls["input_tokens"].sum() == live.calls["input_tokens"].sum()


def test_a_replay_says_what_it_is(taped: Deck) -> None:
    live, again = load(taped.folder / "live"), load(taped.folder / "again")
    manifest, recorded = taped.manifest(), taped.manifest("live")
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


def test_another_recording_is_another_run(taped: Deck, tmp_path: Path) -> None:
    lines = taped.file.read_bytes().splitlines(keepends=True)
    (tmp_path / "shorter").write_bytes(b"".join(lines[:-1]))
    options = RunOptions(taped.folder / "again", replay=tmp_path / "shorter")
    with pytest.raises(UsageError, match="holds another run"):
        run(taped.spec, options, Silent())


def test_an_unknown_request_ends_the_run(taped: Deck) -> None:
    other = dataclasses.replace(taped.spec, run=dataclasses.replace(taped.spec.run, seed=8))
    for _ in range(2):
        with pytest.raises(DataError, match=r"replies\.jsonl: no reply is recorded for this chat"):
            taped.go("other", other)
        assert taped.manifest("other")["status"] == "incomplete"
    failures = load(taped.folder / "other").failures
    assert failures["kind"].tolist().count("not_recorded") == 2, "asked once per run, no retries"


def test_fewer_systems_can_be_replayed(taped: Deck) -> None:
    one = dataclasses.replace(taped.spec, systems=("embedrag",))
    assert taped.go("one", one).status == "complete"
    runs = [load(taped.folder / name) for name in ("live", "one")]
    answers = [r.queries[r.queries["system"] == "embedrag"]["answer"].tolist() for r in runs]
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("kind", "system", "times"),
    [("truncate", "bm25", 1), ("reset", "no_memory", 1), ("reset", "bm25", 3)],
)
def test_faults_are_replayed_as_they_stood(deck: Deck, kind: Any, system: str, times: int) -> None:
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


@pytest.fixture
def written(fake: FakeUpstream, tmp_path: Path) -> Path:
    """The profile as a file, for runs in a process of their own."""
    path = tmp_path / "killed.toml"
    table = "\n".join(f"{k} = {json.dumps(v)}" for k, v in WORKLOAD.items())
    path.write_text(PROFILE.format(url=fake.url, workload=table))
    return path


@pytest.mark.slow
def test_a_killed_recording_is_resumed_and_replayed(
    written: Path, fake: FakeUpstream, tmp_path: Path
) -> None:
    file, out, again = tmp_path / "replies.jsonl", tmp_path / "live", tmp_path / "again"
    spec = profile.load(str(written))
    kill_after(written, out, 60, signal.SIGKILL, "--record", str(file))
    with file.open("ab") as torn:
        torn.write(b'{"scope":"bm25.')
    with pytest.raises(UsageError, match=r"go on with --record and its file, replies\.jsonl"):
        run(spec, RunOptions(out), Silent())
    assert run(spec, RunOptions(out, record=file), Silent()).resumed
    fake.stop()
    kill_after(written, again, 60, signal.SIGKILL, "--replay", str(file))
    assert rows(again) >= 60
    assert run(spec, RunOptions(again, replay=file), Silent()).resumed
    live, replayed = load(out), load(again)
    assert differences(live, replayed) == []
    assert not [c for c in check_run(replayed) if c.ok is False]


def test_recordings_are_not_written_over(deck: Deck) -> None:
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
        (["--replay", "."], 3, ".: cannot read the recording"),
        (["--replay", "f", "--record", "g"], 2, "exclude each other"),
        (["--record", "no/such/folder/f"], 2, "no folder no/such/folder"),
        (["--replay", "gone", "--replay-mode", "through-engine"], 3, "cannot read the recording"),
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
    taped: Deck, written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["--quiet", "--replay", str(taped.file), "--out", str(tmp_path / "run")]
    assert main(["run", str(written), *args, "--set", "answer.max_tokens=47"]) == 3
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "no reply is recorded for this" in said


def test_a_recording_without_facts(deck: Deck) -> None:
    deck.file.write_text('{"agentmem_recording":1,"id":"x"}\n')
    with pytest.raises(DataError, match="does not say which model"):
        deck.go()


def test_a_foreign_server_cannot_be_made_to_produce_tokens(deck: Deck) -> None:
    deck.record()
    options = RunOptions(deck.folder / "x", replay=deck.file, replay_mode="through-engine")
    with pytest.raises(UsageError, match="cannot be made to produce given tokens"):
        run(deck.spec, options, Silent())
    assert not (deck.folder / "x").exists()
