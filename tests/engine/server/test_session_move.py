"""A session moves from one server to another, with what it has computed."""

from __future__ import annotations

import pytest
import torch

from agentmem.engine.core import EngineCore
from tests.engine.server.conftest import Server
from tests.engine.server.real import toy
from tests.engine.server.test_contract_a_real import LONG, PATH, ask, cached

IMPORT = "/v1/sessions/import?cache_salt=t"


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    torch.set_num_threads(1)
    folder, shared = toy(tmp_path_factory.mktemp("toy")), tmp_path_factory.mktemp("sessions")
    servers = []
    for _ in range(2):
        core = EngineCore.load(folder, mode="fp32", threads=1)
        servers.append(Server(core, None, session_dir=shared, mover=core))
    yield servers
    for server in servers:
        server.stop()


def export(server, name, **fields):
    return server.post(f"/v1/sessions/{name}/export?cache_salt=t", {"path": f"{name}.s", **fields})


def test_a_copy_is_used_by_both(pair):
    old, new = pair
    first = old.post(PATH, ask(LONG, "copy"))
    told = export(old, "copy").body
    assert told["tokens"] >= 128 and told["bytes"] > 0 and told["moved"] is False
    assert new.post(IMPORT, {"path": "copy.s"}).body["id"] == "copy"
    again = new.post(PATH, ask(LONG, "copy"))
    assert cached(again) >= 128
    assert again.body["choices"] == first.body["choices"]
    assert cached(old.post(PATH, ask(LONG, "copy"))) >= 128
    assert cached(new.post(PATH, ask(LONG, "copy", "another tenant"))) == 0


def test_a_moved_session_has_one_owner(pair):
    old, new = pair
    old.post(PATH, ask(LONG + "moved", "moved"))
    assert export(old, "moved", move=True).body["moved"] is True
    assert old.post(PATH, ask(LONG, "moved")).status == 200, "an offer is no move"
    assert new.post(IMPORT, {"path": "moved.s"}).body["epoch"] == 2
    for path, body in (
        (PATH, ask("x", "moved")),
        ("/v1/responses", {"input": "x", "session_id": "moved", "cache_salt": "t"}),
    ):
        reply = old.post(path, body)
        assert (reply.status, reply.body["error"]["code"]) == (409, "session_moved"), path
        assert "moved" in reply.body["error"]["message"]
    assert old.get("/v1/sessions/moved?cache_salt=t").status == 409
    assert old.get("/v1/sessions/moved").status == 404, "of another tenant it is nobody's business"
    assert cached(new.post(PATH, ask(LONG + "moved", "moved"))) >= 128
    assert old.post(PATH, ask("x", "moved", "other")).status == 200


def test_a_file_that_does_not_fit_is_refused_with_the_reason(pair, tmp_path_factory):
    old, _ = pair
    old.post(PATH, ask(LONG, "fit"))
    assert export(old, "fit").status == 200
    assert export(old, "fit").status == 409, "no file is written over"
    folder = toy(tmp_path_factory.mktemp("other"), "qwen2")
    core = EngineCore.load(folder, mode="fp32", threads=1)
    other = Server(core, None, session_dir=old.served.session_dir, mover=core)
    try:
        reply = other.post(IMPORT, {"path": "fit.s"})
        assert (reply.status, reply.body["error"]["code"]) == (409, "transfer_refused")
        assert "weights" in reply.body["error"]["message"]
        assert other.post(PATH, ask(LONG, "fit")).status == 200, "computed again instead"
    finally:
        other.stop()
    file = old.served.session_dir / "fit.s"
    data = bytearray(file.read_bytes())
    data[-100] ^= 1
    (file.parent / "spoilt.s").write_bytes(data)
    assert old.post(IMPORT, {"path": "spoilt.s"}).status == 409
