"""Exporting and importing sessions: only inside the server's folder, with every refusal told."""

from __future__ import annotations

import errno
import os
import socket
import threading

import pytest

from agentmem.cli.main import main
from agentmem.engine.kv.transfer import Transferred
from agentmem.engine.sessions import key_tenant
from agentmem.errors import DataError
from tests.engine.server.fakes import FakeCore
from tests.engine.server.test_session_routes import stats

A, B = {"Authorization": "Bearer key-a"}, {"Authorization": "Bearer key-b"}


class Mover:
    """Writes names instead of state."""

    def __init__(self, core: FakeCore) -> None:
        self.core, self.asked, self.gone = core, [], set()

    def export_session(self, session_id, path, *, tenant, move):
        self.asked.append((session_id, tenant, move))
        if path.exists():
            raise DataError(f"{path}: exists already")
        path.write_text(session_id)
        if move:
            self.gone.add((tenant, session_id))
            self.core.known.pop((tenant, session_id))
        return Transferred(session_id, 3, 48, 3000, 1, move)

    def import_session(self, path, *, tenant, session_id):
        self.asked.append((session_id, tenant))
        if not path.is_file():
            raise DataError(f"{path}: No such file or directory")
        name = session_id or path.read_text()
        self.core.known[tenant, name] = stats(name)
        return Transferred(name, 3, 48, 3000, 2, True)

    def session_moved(self, session_id, tenant):
        return (tenant, session_id) in self.gone


@pytest.fixture
def served(start, tmp_path):
    core = FakeCore()
    core.known[key_tenant("key-a"), "mem0/7"] = stats("mem0/7")
    return start(core, keys=("key-a", "key-b"), session_dir=tmp_path, mover=Mover(core))


EXPORT, IMPORT = "/v1/sessions/mem0%2F7/export", "/v1/sessions/import"


def test_there_and_back(served, tmp_path):
    reply = served.post(EXPORT, {"path": "a.session"}, A)
    assert reply.body == {
        "id": "mem0/7", "object": "session.exported", "path": str(tmp_path / "a.session"),
        "tokens": 48, "blocks": 3, "bytes": 3000, "epoch": 1, "moved": False,
    }  # fmt: skip
    reply = served.post(IMPORT, {"path": "a.session", "session_id": "copy"}, B)
    assert (reply.body["id"], reply.body["object"]) == ("copy", "session.imported")
    assert served.get("/v1/sessions/copy", B).status == 200
    assert served.get("/v1/sessions/copy", A).status == 404
    assert served.served.mover.asked == [
        ("mem0/7", key_tenant("key-a"), False),
        ("copy", key_tenant("key-b")),
    ]


def test_a_moved_session_is_a_409_from_then_on(served):
    assert served.post(EXPORT, {"path": "a", "move": True}, A).body["moved"] is True
    for reply in (
        served.post(EXPORT, {"path": "b"}, A),
        served.get("/v1/sessions/mem0%2F7", A),
        served.delete("/v1/sessions/mem0%2F7", A),
    ):
        assert (reply.status, reply.body["error"]["code"]) == (409, "session_moved")
    assert served.get("/v1/sessions/mem0%2F7", B).status == 404, "whose it never was"


def test_refusals(served, tmp_path):
    (tmp_path / "there").write_text("x")
    reply = served.post(EXPORT, {"path": "there"}, A)
    assert (reply.status, reply.body["error"]["code"]) == (409, "transfer_refused")
    assert "exists already" in reply.body["error"]["message"]
    assert served.post(IMPORT, {"path": "nothing"}, A).status == 409
    assert served.post(EXPORT, {"path": "x"}, B).status == 404, "another's session"
    assert served.post("/v1/sessions/none/export", {"path": "x"}, A).status == 404
    for path in (None, "", 7, ".hidden", "a\x00b"):
        assert served.post(EXPORT, {"path": path}, A).status == 400, path
    assert served.post(IMPORT, {"path": "there", "session_id": "a\nb"}, A).status == 400
    assert served.post(EXPORT, {"path": "x" * 300}, A).status == 400


def test_a_folder_that_fails_is_told(served, monkeypatch):
    def full(*args, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(served.served.mover, "export_session", full)
    reply = served.post(EXPORT, {"path": "x"}, A)
    assert (reply.status, reply.body["error"]["code"]) == (500, "session_dir_failed")
    assert "No space left" in reply.body["error"]["message"]


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", "link/x", "a/../../out", "..", "sub/.."])
def test_nothing_outside_the_folder_is_touched(served, tmp_path, path):
    (tmp_path / "link").symlink_to("/tmp")
    for url in (EXPORT, IMPORT):
        reply = served.post(url, {"path": path}, A)
        assert reply.status in (400, 403), reply
    assert served.served.mover.asked == []


def test_without_a_folder_nothing_moves(start):
    core = FakeCore()
    core.known[None, "s"] = stats("s")
    for path in ("/v1/sessions/s/export", IMPORT):
        reply = start(core, mover=Mover(core)).post(path, {"path": "x"})
        assert (reply.status, reply.body["error"]["code"]) == (403, "sessions_stay")


def command(server, *args):
    return main(["engine", "session", *args, "--url", server.url])


def test_the_command(served, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("AGENTMEM_API_KEY", "key-a")
    assert command(served, "list") == 0
    assert "mem0/7" in capsys.readouterr().out
    assert command(served, "export", "mem0/7", "a", "--move") == 0
    assert str(tmp_path / "a") in capsys.readouterr().out
    assert command(served, "import", "a", "--as", "b") == 0
    assert "b: 48 tokens" in capsys.readouterr().out
    assert command(served, "drop", "b") == 0
    assert "dropped b" in capsys.readouterr().out
    for args, code, words in (
        (("drop", "b"), 3, "no session 'b'"),
        (("export", "mem0/7", "c"), 3, "has moved"),
        (("import", "../x"), 4, "inside the session folder"),
    ):
        assert command(served, *args) == code
        err = capsys.readouterr().err
        assert err.startswith("agentmem: ") and words in err and err.count("\n") == 1
    monkeypatch.setenv("AGENTMEM_API_KEY", "wrong")
    assert command(served, "list") == 4
    assert "API key" in capsys.readouterr().err


def test_the_command_sends_any_salt(start, capsys):
    core = FakeCore()
    core.known["é", "mine"] = stats("mine")
    server = start(core, mover=Mover(core))
    assert command(server, "list", "--cache-salt", "é") == 0
    assert "mine" in capsys.readouterr().out
    for args in (("list", "--cache-salt", "a\nb"), ("drop", ""), ("import", "f", "--as", "")):
        assert command(server, *args) == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("reply", [b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\n\r\n{}", b"", b"\r\n"])
def test_the_command_at_another_server(reply, capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer():
            one, _ = other.accept()
            with one:
                one.recv(1000)
                one.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{other.getsockname()[1]}"
        assert main(["engine", "session", "list", "--url", url]) in (2, 4)
        thread.join()
    err = capsys.readouterr().err
    assert err.startswith("agentmem: ") and err.count("\n") == 1 and url in err


def test_the_command_without_a_server(capsys):
    assert main(["engine", "session", "list", "--url", "http://127.0.0.1:9"]) == 4
    assert "agentmem serve" in capsys.readouterr().err
    assert main(["engine", "session", "list", "--url", "nonsense"]) in (2, 4)
    assert capsys.readouterr().err.count("\n") == 1
