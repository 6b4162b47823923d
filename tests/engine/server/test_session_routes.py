"""GET /v1/sessions, GET and DELETE /v1/sessions/{id}: only one's own."""

from __future__ import annotations

import pytest

from agentmem.engine.kv.registry import SessionStats
from agentmem.engine.sessions import key_tenant
from tests.engine.server.fakes import FakeCore

A, B = {"Authorization": "Bearer key-a"}, {"Authorization": "Bearer key-b"}


def stats(name: str, last: float = 5.0) -> SessionStats:
    return SessionStats(name, 2, 30, 10, 7, 3, 300, 100, 1, 4.0, last)


@pytest.fixture
def core() -> FakeCore:
    core = FakeCore()
    for tenant, name in (
        (key_tenant("key-a"), "s"),
        (key_tenant("key-a"), "mem0/ü 7"),
        (f"{key_tenant('key-a')}/salt", "salted"),
        (key_tenant("key-b"), "s"),
        (None, "open"),
        ("plain", "p"),
    ):
        core.known[tenant, name] = stats(name, 6.0 if name == "s" else 5.0)
    return core


def test_ones_own_sessions_the_latest_first(start, core):
    server = start(core, keys=("key-a", "key-b"))
    listed = server.get("/v1/sessions", A).body
    assert listed["object"] == "list"
    assert [one["id"] for one in listed["data"]] == ["s", "mem0/ü 7"]
    assert listed["data"][0] == {
        "id": "s", "object": "session", "requests": 2, "running": 1, "cached_tokens": 30,
        "computed_tokens": 10, "generated_tokens": 7, "hit_rate": 0.75, "blocks_held": 3,
        "bytes_held": 300, "bytes_unique": 100, "created": 4.0, "last_used": 6.0,
    }  # fmt: skip
    salted = server.get("/v1/sessions?cache_salt=salt", A).body["data"]
    assert [one["id"] for one in salted] == ["salted"]
    assert server.get("/v1/sessions", {**A, "X-Cache-Salt": "salt"}).body["data"] == salted
    assert server.get("/v1/sessions?cache_salt=salt", B).body["data"] == []


def test_one_session_by_its_name(start, core):
    server = start(core, keys=("key-a", "key-b"))
    assert server.get("/v1/sessions/mem0%2F%C3%BC%207", A).body["id"] == "mem0/ü 7"
    assert server.get("/v1/sessions/mem0/%C3%BC%207", A).body["id"] == "mem0/ü 7"
    for path, headers in (
        ("/v1/sessions/nothing", A),
        ("/v1/sessions/salted", A),
        ("/v1/sessions/mem0/%C3%BC%207", B),
        ("/v1/sessions/open", A),
        ("/v1/sessions/p?cache_salt=plain", A),
    ):
        for ask in (server.get, server.delete):
            reply = ask(path, headers)
            assert (reply.status, reply.body["error"]["code"]) == (404, "session_not_found"), path
    assert server.get("/v1/sessions/a%00b", A).status == 400


def test_dropping_frees_and_forgets(start, core):
    server = start(core, keys=("key-a", "key-b"))
    reply = server.delete("/v1/sessions/s", A)
    assert reply.body == {
        "id": "s", "object": "session.deleted", "deleted": True, "freed_bytes": 100,
    }  # fmt: skip
    assert server.get("/v1/sessions/s", A).status == 404
    assert server.get("/v1/sessions/s", B).status == 200, "another's of the same name stays"


def test_an_open_server_tells_by_salt(start, core):
    server = start(core)
    assert [one["id"] for one in server.get("/v1/sessions").body["data"]] == ["open"]
    assert server.get("/v1/sessions/p").status == 404
    assert server.get("/v1/sessions/p?cache_salt=plain").status == 200


def test_a_server_without_a_generating_model(start):
    from tests.engine.server.fakes import FakeEmbedder

    assert start(None, FakeEmbedder()).get("/v1/sessions").status == 404
