"""A process of the run is killed, hangs, or comes twice; the clock steps."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentmem.analysis.equal import differences
from agentmem.analysis.load import Run
from agentmem.gateway.relay import Relay
from agentmem.modelfiles.tokenizer import reference_tokenizer
from agentmem.runner.folder import RunFolder
from tests.fake import FakeUpstream, Fault
from tests.faults.conftest import MakeTrial
from tests.faults.stage import Said, Trial, deed, lost, nth, signal_worker
from tests.faults.table import add
from tests.faults.upstream import Upstream, upstream

CalmOf = Callable[[str], Run]


def check(trial: Trial, calm: Run, told: Said, where: str, fault: str, happened: str) -> None:
    """The run is complete, in order, and the undisturbed one in all that counts."""
    assert told.code == 0
    assert trial.broken() == []
    run = trial.load()
    assert lost(run) == "nothing"
    assert differences(calm, run) == []
    line = told.lines[-1] if told.lines else "(none needed)"
    add(where, fault, happened, told.code, lost(run), line)


@pytest.mark.parametrize("kind", ["decide", pytest.param("embed-query", marks=pytest.mark.slow)])
def test_a_killed_worker(kind: str, trial: MakeTrial, calm_of: CalmOf) -> None:
    one = trial()
    one.fake.fail(deed(kind, 1, lambda: signal_worker(signal.SIGKILL)))
    told = one.go()
    assert [line for line in told.lines if "killed by SIGKILL" in line]
    happened = "restarted from the last snapshot, done again"
    check(one, calm_of("scribe"), told, f"worker, {kind}", "killed", happened)


def test_a_hung_worker(trial: MakeTrial, calm_of: CalmOf) -> None:
    one = trial(tables={"limits": {"unit_timeout_s": 1.5}})
    one.fake.fail(deed("decide", 1, lambda: signal_worker(signal.SIGSTOP)))
    told = one.go()
    assert [line for line in told.lines if "its worker hung" in line]
    happened = "killed, restarted from the last snapshot, done again"
    check(one, calm_of("scribe"), told, "worker", "hung", happened)


def test_a_worker_that_dies_on_one_unit(trial: MakeTrial) -> None:
    """The unit is left out after some tries, the others stand."""
    one = trial()
    for number in (1, 3, 5):  # the second unit's; the first is done again before it
        one.fake.fail(deed("decide", number, lambda: signal_worker(signal.SIGKILL)))
    told = one.go()
    run = one.load()
    assert told.code == 0
    assert one.broken() == []
    assert run.units["status"].tolist() == ["ok", "failed", "ok"]
    line = told.lines[-1]
    add("worker, one unit", "killed at every try", "unit left out", told.code, lost(run), line)


@pytest.mark.slow
def test_a_worker_that_always_dies(trial: MakeTrial) -> None:
    """The system is given up; the same command tries it again."""
    one = trial()
    for number in range(1, 9):
        one.fake.fail(deed("decide", number, lambda: signal_worker(signal.SIGKILL)))
    told = one.go()
    assert one.broken() == []
    assert told.code == 1
    assert one.load().manifest["status"] == "incomplete"
    assert "gave_up" in set(one.load().failures["kind"])
    line = told.lines[-1]
    add("worker", "killed at every try", "the system is given up", told.code, "its units", line)
    one.fake._faults.clear()
    again = one.go()
    assert again.code == 0, "the same command tries the system again"
    assert one.broken() == []


def test_an_engine_gone_for_good(
    trial: MakeTrial, calm_of: CalmOf, tmp_path: Path, outside: Upstream
) -> None:
    """One line, exit 4; when the server is back the same command ends the run."""
    one = trial(tables={"engine": {"url": outside.url}})
    killer = threading.Thread(target=kill_at, args=(one, 25, outside))
    killer.start()
    told = one.go()
    killer.join()
    assert told.code == 4
    assert told.lines[-1].startswith("agentmem: cannot reach a model server at ")
    assert told.lines[-1].endswith("run the same command again to go on")
    assert one.broken() == []
    stood = one.rows()
    add("model server", "gone for good", "stopped", told.code, "nothing finished", told.lines[-1])
    with upstream(outside.port):
        again = one.go()
    assert one.rows()[: len(stood)] == stood, "nothing written is lost"
    check(one, calm_of("scribe"), again, "model server", "back again", "resumed to the end")


@pytest.fixture
def outside() -> Iterator[Upstream]:
    with upstream() as running:
        yield running


def kill_at(trial: Trial, rows: int, server: Upstream) -> None:
    while len(trial.rows()) < rows:
        time.sleep(0.005)
    server.process.kill()


def test_a_local_engine_that_dies_is_started_again(
    trial: MakeTrial, calm_of: CalmOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fake in the engine's place, as a child of the run; the real one in test_real.py."""
    engines: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def popen(args: list[str], **given: Any) -> subprocess.Popen[bytes]:
        if "agentmem.engine" in args:
            port = args[args.index("--port") + 1]
            args = [sys.executable, "-m", "tests.fake.upstream", "--port", port]
        process = start(args, **given)
        engines.append(process)
        return process

    monkeypatch.setattr("agentmem.runner.engine.subprocess", SimpleNamespace(**vars(subprocess)))
    monkeypatch.setattr("agentmem.runner.engine.subprocess.Popen", popen)
    monkeypatch.setattr("agentmem.runner.engine.resolve", Path)
    monkeypatch.setattr("agentmem.runner.prepare.pull_models", lambda *_: None)
    monkeypatch.setattr("agentmem.runner.tape.counter", lambda *_: reference_tokenizer("words-v1"))
    one = trial(tables={"engine": {"url": "local", "start_timeout_s": 20.0}})
    killer = threading.Thread(target=lambda: kill_nth(one, 25, engines))
    killer.start()
    told = one.go()
    killer.join()
    assert len(engines) == 2
    assert [line for line in told.lines if "the local engine died" in line]
    assert not any(process.poll() is None for process in engines)
    happened = "started again, unit rolled back, done again"
    check(one, calm_of("scribe"), told, "local engine", "killed", happened)


def kill_nth(trial: Trial, rows: int, engines: list[subprocess.Popen[bytes]]) -> None:
    while len(trial.rows()) < rows:
        time.sleep(0.005)
    engines[0].kill()


def test_the_wall_clock_steps(
    trial: MakeTrial, calm_of: CalmOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every reading of the wall clock is a day off, in turns ahead and behind."""
    true, sign = time.time, itertools.cycle((1, -1))
    monkeypatch.setattr(time, "time", lambda: true() + next(sign) * 86_400)
    monkeypatch.setattr(time, "time_ns", lambda: int(time.time() * 1e9))
    one = trial()
    began = time.monotonic()
    told = one.go()
    took = time.monotonic() - began
    run = one.load()
    for frame, columns in ((run.calls, ["latency_s"]), (run.windows, ["start_s", "end_s"])):
        for column in columns:
            assert frame[column].between(0.0, took).all()
    assert (run.windows["end_s"] >= run.windows["start_s"]).all()
    check(one, calm_of("scribe"), told, "clock", "steps by a day", "no duration moved")


def test_two_runs_into_one_folder(trial: MakeTrial) -> None:
    one = trial()
    first = RunFolder(one.out)
    told = one.go()
    first.close()
    assert told.code == 2
    assert len(told.lines) == 1
    assert told.lines[0].endswith("is in use by another run; wait or choose another --out")
    add("two runs", "one folder", "the second refused", told.code, "nothing", told.lines[0])
    assert one.go().code == 0


@pytest.mark.slow
def test_two_runs_at_once(fake: FakeUpstream, tmp_path: Path, calm_of: CalmOf) -> None:
    pair = [Trial(fake, tmp_path / name) for name in ("one", "two")]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "agentmem", *trial.command(), "--quiet"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=dict(os.environ),
            cwd=Path(__file__).parents[2],
        )
        for trial in pair
    ]
    for trial, process in zip(pair, processes, strict=True):
        _, err = process.communicate(timeout=120)
        lines = tuple(err.decode().splitlines())
        told = Said(process.returncode, lines)
        check(trial, calm_of("scribe"), told, "two runs", "two folders", "both complete")


def test_a_stream_that_ends_too_soon(trial: MakeTrial, calm_of: CalmOf) -> None:
    """In good order, but without a finish reason: half a reply must not pass for a whole one."""
    one = trial()
    one.fake.fail(replace(Fault("silent_end"), fits=nth("extract", 1)))
    told = one.go()
    happened = "rolled back, done again"
    check(one, calm_of("scribe"), told, "scribe extract", "stream ends silently", happened)


def test_a_failing_gateway(
    trial: MakeTrial, calm_of: CalmOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect of its own, met by one request, is no reply of the model's."""
    one, honest, met = trial(), Relay._pass_on, itertools.count()

    async def failing(self: Relay, *given: Any) -> None:
        if next(met) == 4:
            raise RuntimeError("a defect")
        await honest(self, *given)

    monkeypatch.setattr(Relay, "_pass_on", failing)
    told = one.go()
    check(one, calm_of("scribe"), told, "gateway", "its thread fails", "rolled back, done again")
