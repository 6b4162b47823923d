"""`python -m agentmem.engine` as a process: ready, ended, refused."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from agentmem.engine import server
from agentmem.engine.__main__ import main
from tests.engine.server.fakes import FakeCore

ROOT = Path(__file__).parents[3]
FAKE = """
import sys, types
from pathlib import Path
from tests.engine.server.fakes import FakeCore, FakeEmbedder

class Core(FakeCore):
    load = classmethod(lambda cls, path, **options: cls(lambda r: "x" * 900, step_s=0.01))

class Embed(FakeEmbedder):
    load = classmethod(lambda cls, path, threads=None: cls())
    share = lambda self, core: None

def module(name, **content):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(content)

# What takes seconds to import is not under test here.
module("agentmem.engine.core", EngineCore=Core)
module("agentmem.engine.embed", Embedder=Embed)
from agentmem.engine import __main__ as cli
cli.resolve = Path
sys.exit(cli.main(sys.argv[1:]))
"""


def engine(*args: str, **options) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", FAKE, *args]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, **pipes, **options)


def ready(process: subprocess.Popen[str]) -> str:
    line = json.loads(process.stdout.readline())
    assert line["ready"] is True
    assert line["pid"] == process.pid
    return line["url"]


def test_ready_line_answers_and_sigterm(tmp_path):
    process = engine("--model", "m", "--embedder", "e")
    url = ready(process)
    with urllib.request.urlopen(f"{url}/models", timeout=10) as reply:
        assert [m["id"] for m in json.load(reply)["data"]] == ["fake", "fake-embed"]
    data = json.dumps({"messages": [{"role": "user", "content": "x"}]}).encode()
    host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
    with socket.create_connection((host, int(port))) as busy:
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        busy.sendall(head.encode() + data)
        time.sleep(0.2)
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
    assert time.monotonic() - begun < 10, "a request in flight does not hold up the end"
    assert process.stderr.read() == ""
    process.stdout.close()
    process.stderr.close()


def test_a_call_in_progress_gets_an_answer_at_the_end():
    process = engine("--model", "m", "--grace", "0.2")
    url = ready(process)
    host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
    connection = http.client.HTTPConnection(host, int(port))
    body = json.dumps({"messages": [{"role": "user", "content": "x"}]})
    connection.request("POST", "/v1/chat/completions", body)
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    reply = connection.getresponse()
    assert (reply.status, json.load(reply)["error"]["code"]) == (503, "shutting_down")
    connection.close()
    out, err = process.communicate(timeout=15)
    assert (process.returncode, out, err) == (0, "", "")


def test_a_second_signal_ends_the_grace():
    process = engine("--model", "m", "--grace", "60")
    url = ready(process)
    data = json.dumps({"messages": [{"role": "user", "content": "x"}]}).encode()
    host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
    with socket.create_connection((host, int(port))) as busy:
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
        busy.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        time.sleep(0.2)
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
    assert time.monotonic() - begun < 8
    process.communicate()


def test_the_ready_line_may_go_elsewhere():
    read, write = os.pipe()
    process = engine("--model", "m", "--ready-fd", str(write), pass_fds=(write,))
    os.close(write)
    with os.fdopen(read) as source:
        assert json.loads(source.readline())["pid"] == process.pid
    process.terminate()
    assert process.communicate(timeout=15) == ("", "")


def test_a_client_that_speaks_no_http_is_no_news():
    process = engine("--model", "m")
    url = ready(process)
    host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
    for head in ("X-Session-ID: a\x01b\r\n", "Content-Encoding: gzip\r\n", "\x00\r\n"):
        with socket.create_connection((host, int(port))) as rude:
            length = "Content-Length: 2\r\nConnection: close\r\n"
            head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\n{length}{head}\r\n{{}}"
            rude.sendall(head.encode())
            assert b" 400 " in rude.recv(1000)
    process.terminate()
    assert process.communicate(timeout=15) == ("", "")


def test_the_models_are_let_go_at_the_end(monkeypatch):
    kept = []

    async def run(served, *rest):
        kept.append((served, served.chat.name))

    monkeypatch.setattr(server, "_run", run)
    monkeypatch.setattr(server, "load_core", lambda path, options: FakeCore())
    server.serve(Path("m"), None)
    served, name = kept[0]
    assert (name, served.chat, served.mover) == ("fake", None, None)


def refused(capsys, *args: str) -> tuple[int, str]:
    code = main(args)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    return code, err


def test_a_taken_port_is_one_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = engine("--model", "m", "--port", str(taken.getsockname()[1]))
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (4, "")
    assert err.count("\n") == 1
    assert "cannot listen on 127.0.0.1:" in err and "--port 0" in err


def test_missing_and_spoilt_models_are_one_line(tmp_path, capsys):
    code, line = refused(capsys, "--model", str(tmp_path / "none.gguf"))
    assert code == 3 and "none.gguf" in line
    spoilt = tmp_path / "spoilt.gguf"
    spoilt.write_bytes(b"GGUF" + b"\x00" * 50)
    code, line = refused(capsys, "--model", str(spoilt))
    assert code == 3 and "spoilt.gguf" in line
    code, line = refused(capsys, "--model", str(spoilt), "--mode", "int3")
    assert code == 2 and "int3" in line
    code, line = refused(capsys)
    assert code == 2 and "nothing to serve" in line
    code, line = refused(capsys, "--model", str(spoilt), "--session-ledger", str(spoilt))
    assert code == 2 and "--session-ledger" in line
    code, line = refused(capsys, "--model", str(spoilt), "--parent-pid", "999999999")
    assert code == 2 and "--parent-pid" in line


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_it_does_not_outlive_its_parent(tmp_path, how):
    script = (
        "import os, subprocess, sys, time\n"
        f"p = subprocess.Popen([sys.executable, '-c', {FAKE!r}, '--model', 'm',"
        " '--parent-pid', str(os.getpid())], stdout=subprocess.PIPE, text=True)\n"
        "print(p.stdout.readline(), flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    pid = json.loads(parent.stdout.readline())["pid"]
    os.kill(pid, 0)
    parent.send_signal(how)
    parent.wait(10)
    parent.stdout.close()
    until = time.monotonic() + 15
    while time.monotonic() < until and Path(f"/proc/{pid}/stat").exists():
        if Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] == "Z":
            break
        time.sleep(0.05)
    else:
        assert not Path(f"/proc/{pid}").exists(), "the engine outlived its parent"
