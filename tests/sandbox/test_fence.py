"""Network, user id, orphans: what a worker must not be able to do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import pytest

from agentmem.sandbox.client import Worker
from agentmem.sandbox.environment import Environment
from agentmem.sandbox.failure import WorkerFailure
from agentmem.sandbox.launch import WorkerOptions
from tests.sandbox.systems import ENDPOINTS, LIMITS, probe, unit, worker_of
from tests.sandbox.test_worker import gone

ROOT = Path(__file__).resolve().parents[2]
NETWORK = """
target = json.loads(unit.text)
seen = []
def attempt():
    try:
        if target[0] == "udp":
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("203.0.113.9", 9))
        elif target[0] == "resolve":
            socket.getaddrinfo("example.com", 443)
        else:
            socket.create_connection(tuple(target), timeout=5).close()
        seen.append("connected")
    except OSError as error:
        seen.append(type(error).__name__)
thread = threading.Thread(target=attempt)
thread.start()
thread.join()
return Stored(note=seen[0])
"""


@pytest.fixture
def listener() -> socket.socket:
    server = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        try:
            while True:
                server.accept()[0].close()
        except OSError:
            return

    threading.Thread(target=accept, daemon=True).start()
    return server


@pytest.mark.parametrize(
    ("target", "allowed", "result"),
    [
        ('["127.0.0.1", {port}]', True, "connected"),
        ('["localhost", {port}]', True, "connected"),
        ('["127.0.0.1", {port}]', False, "PermissionError"),
        ('["203.0.113.9", {port}]', True, "PermissionError"),
        ('["example.com", 443]', True, "PermissionError"),
        ('["udp"]', True, "PermissionError"),
        ('["resolve"]', True, "PermissionError"),
    ],
)
def test_only_declared_loopback_ports(
    tmp_path: Path, listener: socket.socket, target: str, allowed: bool, result: str
) -> None:
    port = listener.getsockname()[1]
    spec = probe(tmp_path, NETWORK, "import json, socket, threading")
    with worker_of(spec, tmp_path, (port,) if allowed else ()) as worker:
        worker.open(ENDPOINTS, LIMITS)
        assert worker.construct(unit(target.format(port=port))).note == result
        assert worker.last is not None
        assert worker.last.blocked == (result == "PermissionError")
        if not allowed:
            assert worker.last.blocked_targets == (f"127.0.0.1:{port}",)
            worker.allow((port,))
            assert worker.construct(unit(target.format(port=port))).note == "connected"
            assert worker.last.blocked == 0
    listener.close()


def test_servers_inside_the_worker_may_use_unix_sockets(tmp_path: Path) -> None:
    body = """
    a, b = socket.socketpair()
    async def main():
        reader, writer = await asyncio.open_unix_connection(sock=a)
        writer.write(b"hi")
        return b.recv(2)
    return Stored(note=asyncio.run(main()).decode())
    """
    spec = probe(tmp_path, body, "import asyncio, socket")
    with worker_of(spec, tmp_path) as worker:
        assert worker.construct(unit()).note == "hi"


SYSTEM_PYTHON = Path("/usr/bin/python3")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a worker its own user id")
@pytest.mark.skipif(not SYSTEM_PYTHON.exists(), reason="needs a Python that all users can reach")
def test_a_worker_has_its_own_uid_where_it_can() -> None:
    body = """
    try:
        os.listdir("/root")
        root = "open"
    except PermissionError:
        root = "closed"
    with open(os.path.join(self.dir, "file"), "w") as file:
        file.write("x")
    return Stored(added=os.getuid(), note=root)
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        spec = probe(folder, body, "import os")
        env = Environment(SYSTEM_PYTHON, "none", None)
        with Worker(spec, env, folder / "store", folder / "logs") as worker:
            worker.open(ENDPOINTS, LIMITS)
            assert worker.isolation is not None
            if worker.isolation.uid is None:
                pytest.skip(f"no uid of its own here: {worker.isolation.uid_reason}")
            stored = worker.construct(unit())
            assert stored.added == worker.isolation.uid != 0
            if (Path("/root").stat().st_mode & 0o005) == 0:
                assert stored.note == "closed"
            worker.snapshot(folder / "copy")
            assert (folder / "copy" / "file").read_text() == "x"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root asks")
def test_a_shared_uid_says_why(tmp_path: Path) -> None:
    spec = probe(tmp_path, "return Stored(added=os.getuid())", "import os")
    options = WorkerOptions(own_uid=False)
    with worker_of(spec, tmp_path, options=options) as worker:
        assert worker.isolation is not None
        assert (worker.isolation.label, worker.isolation.uid_reason) == ("shared", "switched off")
        assert worker.construct(unit()).added == os.getuid()


HOST = """
import sys
from pathlib import Path
from agentmem.sandbox.client import Worker
from agentmem.sandbox.environment import ensure
from agentmem.sandbox.specs import load_spec
from tests.sandbox.systems import unit
folder = Path(sys.argv[1])
spec = load_spec(folder / "system")
worker = Worker(spec, ensure(spec), folder / "store", folder / "logs")
worker.start()
print(worker.pid, flush=True)
worker.construct(unit(), timeout_s=600)
"""


def test_orphans_die_with_the_harness(tmp_path: Path) -> None:
    """The worker is busy in a verb, has a child, and the harness is killed without warning."""
    body = f"""
    subprocess.Popen(["sleep", "600"])
    with open("{tmp_path}/part", "w") as file:
        file.write(os.environ["HOME"])
    os.rename("{tmp_path}/part", "{tmp_path}/ready")
    while True:
        re.match(r"(a+)+$", "a" * 40 + "b")
    """
    probe(tmp_path, body, "import os, re, subprocess")
    host = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOST), str(tmp_path)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
    assert host.stdout is not None
    pid = int(host.stdout.readline())
    for _ in range(400):
        if (tmp_path / "ready").exists():
            break
        threading.Event().wait(0.05)
    child = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    host.send_signal(signal.SIGKILL)
    host.wait()
    host.stdout.close()
    assert gone(pid)
    assert gone(child)
    home = Path((tmp_path / "ready").read_text())
    assert any(not home.exists() or time.sleep(0.1) for _ in range(200))


def test_closing_ends_what_the_system_left_running(tmp_path: Path) -> None:
    body = """
    stray = subprocess.Popen(["sleep", "600"], start_new_session=True)
    threading.Thread(target=time.sleep, args=(600,)).start()
    return Stored(added=stray.pid)
    """
    spec = probe(tmp_path, body, "import subprocess, threading, time")
    worker = worker_of(spec, tmp_path)
    worker.start()
    stray = worker.construct(unit()).added
    pid = worker.pid
    assert pid is not None
    worker._process.wait = lambda timeout_s: False  # type: ignore[union-attr,method-assign]
    worker.close()
    assert gone(stray) and gone(pid)


def test_a_failing_close_still_ends_the_process(tmp_path: Path) -> None:
    spec = probe(tmp_path, "return Stored()")
    text = spec.adapter.read_text() + "    def close(self):\n        raise OSError('disk full')\n"
    spec.adapter.write_text(text)
    worker = worker_of(spec, tmp_path)
    worker.start()
    pid = worker.pid
    with pytest.raises(WorkerFailure, match="disk full"):
        worker.close()
    assert worker.pid is None and pid is not None and gone(pid)
