"""Killed at any point, the same command ends with the tables of an uninterrupted run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentmem.analysis.checks import check_run
from agentmem.analysis.equal import differences
from agentmem.analysis.load import Run, load
from tests.fake import FakeUpstream
from tests.runner.conftest import WORKLOAD

ROOT = Path(__file__).resolve().parents[2]
PROFILE = """
name = "killed"
systems = ["bm25", "embedrag"]
[workload]
{workload}
[engine]
url = "{url}"
model = "fake-chat"
embedder = "fake-embed"
[run]
quiet_s = 0.02
snapshot_every = 2
"""
POINTS = [5, 40, 90]
"""Journal rows after which the command is killed; a whole run writes about 150."""


@pytest.fixture(scope="module")
def server() -> Iterator[FakeUpstream]:
    with FakeUpstream() as fake:
        yield fake


@pytest.fixture(scope="module")
def profile_file(server: FakeUpstream, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("profile") / "killed.toml"
    table = "\n".join(f"{k} = {json.dumps(v)}" for k, v in WORKLOAD.items())
    path.write_text(PROFILE.format(url=server.url, workload=table))
    return path


@pytest.fixture(scope="module")
def calm(profile_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("calm") / "run"
    assert finish(profile_file, out) == 0
    return load(out)


def start(profile: Path, out: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "agentmem", "run", str(profile), "--out", str(out), "--quiet"]
    command += more
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    # a test run in the background of a script has Ctrl-C ignored, and would hand that on
    return subprocess.Popen(command, cwd=ROOT, preexec_fn=heeding, **quiet)


def heeding() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def finish(profile: Path, out: Path) -> int:
    return start(profile, out).wait(120)


def rows(out: Path) -> int:
    journal = out / "journal.jsonl"
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def descendants(pid: int) -> set[int]:
    """Processes below `pid`, by parent links."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.parent.name)] = int(fields[1])
    found: set[int] = set()
    while True:
        more = {p for p, parent in parents.items() if parent in found | {pid}} - found
        if not more:
            return found
        found |= more


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill_after(profile: Path, out: Path, count: int, how: signal.Signals, *more: str) -> set[int]:
    """Signal a run once its journal has `count` rows; returns its children at that moment."""
    process = start(profile, out, *more)
    while rows(out) < count and process.poll() is None:
        time.sleep(0.002)
    children = descendants(process.pid)
    os.kill(process.pid, how)
    process.wait(90)  # seconds on a quiet machine, more on a crowded one
    return children


def gone(pids: set[int], within_s: float = 10.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if not any(map(alive, pids)):
            return True
        time.sleep(0.05)
    return False


def check_trial(profile: Path, calm: Run, out: Path, points: list[int]) -> None:
    for point in points:
        children = kill_after(profile, out, point, signal.SIGKILL)
        assert gone(children), "a process outlived the command"
    assert finish(profile, out) == 0
    resumed = load(out)
    assert differences(calm, resumed) == []
    assert not [c for c in check_run(resumed) if c.ok is False]


@pytest.mark.parametrize(
    "point", [pytest.param(p, marks=pytest.mark.slow) if p != 40 else p for p in POINTS]
)
def test_killed_and_resumed(point: int, profile_file: Path, calm: Run, tmp_path: Path) -> None:
    check_trial(profile_file, calm, tmp_path / "run", [point])


@pytest.mark.slow
def test_killed_twice(profile_file: Path, calm: Run, tmp_path: Path) -> None:
    check_trial(profile_file, calm, tmp_path / "run", [30, 70])


def test_control_c_stops_cleanly(profile_file: Path, calm: Run, tmp_path: Path) -> None:
    out = tmp_path / "run"
    children = kill_after(profile_file, out, 40, signal.SIGINT)
    assert gone(children)
    assert json.loads((out / "manifest.json").read_text())["status"] == "incomplete"
    assert finish(profile_file, out) == 0
    assert differences(calm, load(out)) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_thirty_points(profile_file: Path, calm: Run, tmp_path: Path) -> None:
    whole = rows(calm.folder)
    for number in range(30):
        point = max(1, whole * number // 30)
        check_trial(profile_file, calm, tmp_path / f"run{number}", [point])
