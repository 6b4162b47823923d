"""What upstreams do to their process, and what the harness sees of it."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from agentmem.sandbox.client import Worker
from agentmem.sandbox.failure import WorkerFailure
from tests.sandbox.systems import ENDPOINTS, LIMITS, probe, unit, worker_of


def started(folder: Path, construct: str, head: str = "") -> Worker:
    worker = worker_of(probe(folder, construct, head), folder)
    worker.start()
    worker.open(ENDPOINTS, LIMITS)
    return worker


def gone(pid: int) -> bool:
    """True when the process ends within some seconds (a zombie has ended)."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_an_exception_is_reported_and_lived_through(tmp_path: Path) -> None:
    body = """
    print("about to fail")
    if unit.text == "bad":
        raise KeyError("no such fact")
    return Stored(added=2, note="fine")
    """
    worker = started(tmp_path, body)
    with pytest.raises(WorkerFailure) as caught:
        worker.construct(unit("bad"))
    failure = caught.value
    assert (failure.kind, failure.message) == ("raised", "construct: KeyError: 'no such fact'")
    assert failure.last_output is not None and "about to fail" in failure.last_output
    assert failure.traceback is not None and 'raise KeyError("no such fact")' in failure.traceback
    assert worker.construct(unit("good")).note == "fine"
    worker.close()
    assert worker.pid is None


@pytest.mark.parametrize("body", ["sys.exit(3)", "raise SystemExit", "1 / 0", "return 7"])
def test_odd_endings_of_a_verb_do_not_end_the_worker(tmp_path: Path, body: str) -> None:
    worker = started(tmp_path, f"if unit.text == 'bad': {body}\nreturn Stored()", "import sys")
    with pytest.raises(WorkerFailure) as caught:
        worker.construct(unit("bad"))
    assert caught.value.kind == "raised"
    assert worker.construct(unit("good")).added == 0
    worker.close()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        ("os.abort()", "killed by SIGABRT"),
        ("os._exit(7)", "exit code 7"),
    ],
)
def test_a_death_is_reported_and_the_worker_restarts(tmp_path: Path, body: str, words: str) -> None:
    text = f"print('last words')\nif unit.text == 'bad': {body}\nreturn Stored(added=1)"
    worker = started(tmp_path, text, "import os")
    pid = worker.pid
    with pytest.raises(WorkerFailure) as caught:
        worker.construct(unit("bad"))
    assert (caught.value.kind, caught.value.message) == ("died", f"construct: {words}")
    assert caught.value.last_output is not None and "last words" in caught.value.last_output
    assert worker.pid is None
    with pytest.raises(WorkerFailure, match="not running"):
        worker.flush()
    worker.start()
    worker.open(ENDPOINTS, LIMITS)
    assert worker.pid != pid
    assert worker.construct(unit("good")).added == 1
    worker.close()


def test_a_hang_is_killed_with_its_children(tmp_path: Path) -> None:
    body = """
    child = subprocess.Popen(["sleep", "600"])
    stray = subprocess.Popen(["sleep", "600"], start_new_session=True)
    print("children", child.pid, stray.pid)
    time.sleep(600)
    """
    worker = started(tmp_path, body, "import subprocess, time")
    pid = worker.pid
    start_s = time.monotonic()
    with pytest.raises(WorkerFailure) as caught:
        worker.construct(unit(), timeout_s=1.0)
    assert time.monotonic() - start_s < 20
    assert caught.value.kind == "timeout"
    assert caught.value.message == "construct: no answer in 1.0 s"
    assert caught.value.last_output is not None
    children = caught.value.last_output.rsplit("children ", 1)[1].split()
    assert pid is not None and gone(pid)
    assert all(gone(int(child)) for child in children)


def test_a_worker_that_does_not_read_times_out(tmp_path: Path) -> None:
    """A stopped process leaves the pipe full: writing must not block for ever."""
    worker = started(tmp_path, "return Stored()")
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGSTOP)
    with pytest.raises(WorkerFailure) as caught:
        worker.construct(unit("x" * 2_000_000), timeout_s=1.0)
    assert caught.value.kind == "timeout"


def test_kill_from_another_thread_ends_a_waiting_verb(tmp_path: Path) -> None:
    worker = started(tmp_path, "time.sleep(600)", "import time")
    timer = threading.Timer(0.5, worker.kill)
    timer.start()
    with pytest.raises(WorkerFailure) as caught:
        worker.construct(unit(), timeout_s=60)
    assert caught.value.kind == "died"
    timer.join()
    assert worker.pid is None


def test_noise_goes_to_the_log_only(tmp_path: Path) -> None:
    body = """
    print('{"id": 1, "ok": true}')
    os.write(1, b"\\xff\\xfe raw bytes\\n")
    print("oops", file=sys.stderr)
    subprocess.run(["sh", "-c", "echo from a child"])
    logging.getLogger("upstream").error("lost a fact")
    logging.getLogger("upstream").warning("hm")
    return Stored(added=1)
    """
    worker = started(tmp_path, body, "import logging, os, subprocess, sys")
    assert worker.construct(unit(name="unit-7")).added == 1
    assert worker.last is not None
    assert worker.last.errors_logged == 1
    log = worker.log.read_bytes()
    noise = log.rsplit(b"=== construct unit-7\n", 1)[1]
    assert worker.last.noise_bytes == len(noise)
    for words in (b'{"id": 1', b"\xff\xfe raw", b"oops", b"from a child", b"lost a fact"):
        assert words in noise
    worker.flush()
    assert worker.last.errors_logged == 0 and worker.last.noise_bytes == 0
    worker.close()


def test_a_huge_line_passes_both_ways(tmp_path: Path) -> None:
    text = "".join(chr(0x1F600 + i % 50) for i in range(1_000_000))
    worker = started(tmp_path, "return Stored(added=len(unit.text), note=unit.text)")
    stored = worker.construct(unit(text))
    assert stored.added == len(text) and stored.note == text
    worker.close()


def test_wrong_values_are_named(tmp_path: Path) -> None:
    worker = started(tmp_path, "return Stored(added=-1)")
    with pytest.raises(WorkerFailure, match="added: -1 is not a whole number"):
        worker.construct(unit())
    worker.close()


def test_the_environment_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    body = """
    open(os.path.expanduser("~/trace"), "w").close()
    fds = sorted(int(n) for n in os.listdir("/proc/self/fd"))
    return Stored(note=json.dumps([dict(os.environ), os.getcwd(), len(fds), core]))
    """
    head = "import json, os, resource\ncore = resource.getrlimit(resource.RLIMIT_CORE)[1]"
    spec = probe(tmp_path, body, head, tables='[env]\nWHERE = "{store}/x"')
    worker = worker_of(spec, tmp_path)
    worker.start()
    import json

    env, cwd, fds, core = json.loads(worker.construct(unit()).note or "")
    assert set(env) == {
        "HOME", "LANG", "PATH", "PYTHONHASHSEED", "PYTHONSAFEPATH", "TMPDIR", "TZ", "WHERE",
    }  # fmt: skip
    assert env["WHERE"] == f"{tmp_path}/store/x"
    assert cwd == env["TMPDIR"] and core == 0
    assert fds <= 6  # the standard three, two pipes, and the listing itself
    assert Path(env["HOME"], "trace").exists()
    worker.close()
    assert not Path(env["HOME"]).exists()


def test_agentmem_itself_is_not_importable(tmp_path: Path) -> None:
    body = """
    try:
        import agentmem.records
    except ImportError as error:
        return Stored(note=str(error))
    """
    worker = started(tmp_path, body)
    assert "agentmem.records" in (worker.construct(unit()).note or "")
    worker.close()


@pytest.mark.parametrize(
    ("adapter", "words"),
    [
        ("import no_such_module", "ModuleNotFoundError"),
        ("class A: pass", "must define one MemorySystem subclass"),
    ],
)
def test_a_faulty_adapter_is_reported_at_start(tmp_path: Path, adapter: str, words: str) -> None:
    spec = probe(tmp_path, "return Stored()")
    spec.adapter.write_text(adapter)
    worker = worker_of(spec, tmp_path)
    with pytest.raises(WorkerFailure, match=words):
        worker.start()
    assert worker.pid is None


def test_another_wire_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = worker_of(probe(tmp_path, "return Stored()"), tmp_path)
    monkeypatch.setattr("agentmem.memory.WIRE", 9)
    with pytest.raises(WorkerFailure, match="the harness speaks wire format 9, this worker 1"):
        worker.start()
    assert worker.pid is None


def test_garbage_on_the_reply_pipe_is_a_protocol_failure(tmp_path: Path) -> None:
    body = """
    fds = [int(n) for n in os.listdir("/proc/self/fd")]
    for fd in fds:
        try:
            if fd > 2 and "pipe" in os.readlink(f"/proc/self/fd/{fd}"):
                os.write(fd, b"garbage\\n")
        except OSError:
            pass
    return Stored()
    """
    worker = started(tmp_path, body, "import os")
    with pytest.raises(WorkerFailure) as caught:
        worker.construct(unit())
    assert caught.value.kind == "protocol"
    assert worker.pid is None
