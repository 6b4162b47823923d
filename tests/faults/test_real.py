"""One real kill each of the command, a worker and the local engine, with a small real model.

AGENTMEM_CACHE=... pytest -m slow tests/faults/test_real.py
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentmem.analysis.checks import check_run, failed
from agentmem.analysis.equal import differences
from agentmem.analysis.load import Run, load
from agentmem.errors import AgentMemError
from agentmem.modelfiles.fetch import resolve
from agentmem.sandbox.process import descendants
from tests.faults.table import add

ROOT = Path(__file__).resolve().parents[2]
PR_SET_CHILD_SUBREAPER = 36
PROFILE = """
systems = ["bm25", "embedrag"]
[workload]
name = "generated"
seed = 7
unit = "session"
sessions = 3
history_tokens = 400
questions = 3
tokenizer = "smollm2"
[engine]
url = "local"
model = "smollm2-135m"
embedder = "minilm-l6"
[answer]
k = 3
max_tokens = 8
[run]
snapshot_every = 2
reference_rows = false
"""


def models_here() -> bool:
    try:
        return bool(resolve("smollm2-135m") and resolve("minilm-l6"))
    except AgentMemError:
        return False


pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not models_here(), reason="needs: agentmem models pull"),
]


@pytest.fixture(scope="module", autouse=True)
def orphans_are_ours() -> Iterator[None]:
    """Whoever outlives its parent becomes a child of this process, so that none can hide."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("profile") / "real.toml"
    path.write_text(PROFILE)
    return path


@pytest.fixture(scope="module")
def calm(profile: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("calm") / "run"
    process = start(profile, out)
    assert process.wait(600) == 0
    nobody_left()
    return load(out)


def start(profile: Path, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "agentmem", "run", str(profile), "--out", str(out), "--quiet"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=sys.stderr)


def wait_for(out: Path, ready: Callable[[bytes], bool], process: subprocess.Popen[bytes]) -> None:
    journal = out / "journal.jsonl"
    while process.poll() is None and not (journal.exists() and ready(journal.read_bytes())):
        time.sleep(0.005)
    assert process.poll() is None, "the run was over before the kill"


def mid_embedding(journal: bytes) -> bool:
    return journal.count(b'"kind":"embed-write"') >= 2


def mid_answering(journal: bytes) -> bool:
    return b'"kind":"embed-query"' in journal


def one_below(pid: int, words: bytes) -> int:
    """The descendant whose command line holds `words`."""
    for child in descendants(pid):
        with contextlib.suppress(OSError):
            if words in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
    raise LookupError(words)


def nobody_left(within_s: float = 15.0) -> None:
    """No descendant of this process is alive, orphans included."""
    deadline = time.monotonic() + within_s
    while left := [pid for pid in descendants(os.getpid()) if not reaped(pid)]:
        assert time.monotonic() < deadline, [commands(pid) for pid in left]
        time.sleep(0.1)


def reaped(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return not Path(f"/proc/{pid}").exists()


def commands(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def check(calm: Run, out: Path, where: str, happened: str) -> None:
    run = load(out)
    assert run.manifest["status"] == "complete"
    assert [c.detail for c in failed(check_run(run))] == []
    assert differences(calm, run) == []
    add(where, "killed (real engine)", happened, 0, "nothing", "(none needed)")


@pytest.mark.parametrize("ready", [mid_embedding, mid_answering])
def test_the_command_is_killed(
    ready: Callable[[bytes], bool], profile: Path, calm: Run, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    process = start(profile, out)
    wait_for(out, ready, process)
    process.kill()
    assert process.wait(10) == -signal.SIGKILL
    nobody_left()
    assert start(profile, out).wait(600) == 0
    nobody_left()
    check(calm, out, f"command, {ready.__name__}", "resumed to the end")


def test_a_worker_is_killed(profile: Path, calm: Run, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start(profile, out)
    wait_for(out, mid_embedding, process)
    os.kill(one_below(process.pid, b"sandbox/worker.py"), signal.SIGKILL)
    assert process.wait(600) == 0
    nobody_left()
    check(calm, out, "worker", "rolled back, done again")


def test_the_engine_is_killed(profile: Path, calm: Run, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start(profile, out)
    wait_for(out, mid_answering, process)
    os.kill(one_below(process.pid, b"agentmem.engine"), signal.SIGKILL)
    assert process.wait(600) == 0
    nobody_left()
    check(calm, out, "local engine", "started again, rolled back, done again")
