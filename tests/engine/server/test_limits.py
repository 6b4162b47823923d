"""Keys, places, time and size; and an end in which every call gets an answer."""

from __future__ import annotations

import http.client
import json
import logging
import threading
import time

import pytest

from agentmem.engine.api.limits import Keys, Limits, read_keys
from agentmem.engine.errors import RequestError
from agentmem.engine.server import check_limits, is_local
from agentmem.errors import UsageError
from tests.engine.server.fakes import FakeCore, FakeEmbedder
from tests.engine.server.test_disconnect import wait_for

CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "x"}]}
A, B = {"Authorization": "Bearer key-a"}, {"Authorization": "Bearer key-b"}


def slow(text: str = "x" * 100, step_s: float = 0.02) -> FakeCore:
    return FakeCore(lambda request: text, step_s=step_s)


def in_background(server, path=CHAT, body=BODY, headers=None):
    replies = []
    thread = threading.Thread(target=lambda: replies.append(server.post(path, body, headers)))
    thread.start()
    return thread, replies


def test_who_has_no_key_is_not_let_in(start):
    server = start(FakeCore(), FakeEmbedder(), keys=("key-a", "key-b"))
    wrong = [{}, {"Authorization": "Bearer nope"}, {"Authorization": "Basic key-a"},
             {"Authorization": "Bearer "}, {"Authorization": "Bearer key-a2"}]  # fmt: skip
    for headers in wrong:
        for path in (CHAT, "/v1/embeddings", "/v1/responses", "/v1/generate", "/tokenize"):
            reply = server.post(path, BODY, headers)
            assert (reply.status, reply.body["error"]["code"]) == (401, "invalid_api_key")
            assert reply.headers["WWW-Authenticate"] == "Bearer"
        assert server.get("/v1/models", headers).status == 401
        assert server.get("/v1/sessions", headers).status == 401
    for path in ("/health", "/ready", "/metrics"):
        assert server.get(path).status == 200
    assert server.post(CHAT, BODY, A).status == server.post(CHAT, BODY, B).status == 200
    assert server.get("/v1/models", {"authorization": "bearer key-a"}).status == 200
    assert len(server.core.requests) == 2


def test_keys_are_tenants_and_a_salt_divides_only_its_own(start):
    server = start(FakeCore(), keys=("key-a", "key-b"))
    for headers in (A, B):
        server.post(CHAT, BODY, headers)
        server.post(CHAT, {**BODY, "cache_salt": "same"}, headers)
        server.post(CHAT, BODY, {**headers, "X-Cache-Salt": "same"})
    tenants = [request.tenant for request in server.core.requests]
    assert len(set(tenants)) == 4
    assert tenants[1] == tenants[2] and tenants[4] == tenants[5]
    assert all("key-a" not in tenant.removeprefix("key-") for tenant in tenants)


def test_a_salt_cannot_pass_for_a_key(start):
    server = start(FakeCore())
    server.post(CHAT, BODY, A)
    owner = server.core.requests[0].tenant
    server.post(CHAT, {**BODY, "cache_salt": owner})
    assert server.core.requests[1].tenant != owner


def test_another_keys_account_is_not_told(start):
    server = start(FakeCore(), keys=("key-a", "key-b"))
    name = server.post(CHAT, BODY, A).body["id"]
    assert server.get(f"/agentmem/requests/{name}", A).status == 200
    assert server.get(f"/agentmem/requests/{name}", B).status == 404


def test_where_keys_come_from(tmp_path):
    file = tmp_path / "keys"
    file.write_text("# team\none\n\n two \n")
    assert read_keys(["zero"], file, "three, four,") == ["zero", "three", "four", "one", "two"]
    assert read_keys([], None, None) == []
    file.write_text("# none\n")
    for given, path in (([], file), ([""], None), (["a b"], None), ([], tmp_path / "nowhere")):
        with pytest.raises(UsageError):
            read_keys(given, path, None)
    assert not Keys() and Keys(["a"])


def test_only_as_many_calls_as_there_are_places(start):
    server = start(slow("x" * 60), FakeEmbedder(), limits={"max_concurrency": 1})
    thread, replies = in_background(server)
    assert wait_for(lambda: server.core.steps > 1)
    for path, body in ((CHAT, BODY), ("/v1/embeddings", {"input": "x"})):
        reply = server.post(path, body)
        assert (reply.status, reply.body["error"]["code"]) == (429, "too_many_requests")
        assert reply.body["error"]["type"] == "rate_limit_error"
        assert int(reply.headers["Retry-After"]) >= 1
    assert server.get("/health").status == server.get("/v1/models").status == 200
    thread.join()
    assert replies[0].status == 200
    assert server.post(CHAT, BODY).status == 200, "the place is free again"
    assert 'reason="too_many_requests"} 2' in server.get("/metrics").body


def test_an_engine_that_is_overloaded_says_when_to_come_back(start):
    class Full(FakeCore):
        def submit(self, request, on_delta, on_done):
            raise RequestError("overloaded", "too much is queued", retry_after_s=2.2)

    reply = start(Full()).post(CHAT, BODY)
    assert (reply.status, reply.body["error"]["code"]) == (429, "overloaded")
    assert reply.headers["Retry-After"] == "3"


def test_a_session_that_moved_is_a_409(start):
    class Moved(FakeCore):
        def submit(self, request, on_delta, on_done):
            raise RequestError("session_moved", "session 's' was exported", "session_id")

    reply = start(Moved()).post(CHAT, BODY)
    assert (reply.status, reply.body["error"]["code"]) == (409, "session_moved")


def test_time_is_up(start):
    server = start(slow(step_s=0.05), FakeEmbedder(delay_s=5), limits={"timeout_s": 0.3})
    begun = time.monotonic()
    for path, body in (
        (CHAT, BODY),
        ("/v1/completions", {"prompt": "x"}),
        ("/v1/responses", {"input": "x"}),
        ("/v1/generate", {"token_ids": [1]}),
        ("/v1/embeddings", {"input": "x"}),
    ):
        reply = server.post(path, body)
        assert (reply.status, reply.body["error"]["code"]) == (504, "timeout"), path
    assert time.monotonic() - begun < 5
    assert wait_for(lambda: len(server.core.records) == 4)
    assert {r.finish_reason for r in server.core.records.values()} == {"abort"}, "it is free"
    assert server.get("/health").body["in_flight"] == 0
    events, _ = server.stream(CHAT, BODY)
    assert events[-1]["error"]["code"] == "timeout"


def test_a_client_that_does_not_read_does_not_hold_the_engine(start):
    server = start(FakeCore(lambda request: "x" * 10**6, window=10**7), limits={"timeout_s": 0.5})
    connection = http.client.HTTPConnection(*server.address)
    body = {**BODY, "stream": True, "max_tokens": 10**6}
    connection.request("POST", CHAT, json.dumps(body))
    assert wait_for(lambda: len(server.core.records) == 1, 10), "the engine was told"
    assert wait_for(lambda: server.served.gate.running == 0, 10), "and the place is free"
    connection.close()


def test_a_body_that_does_not_come(start):
    server = start(FakeCore(), limits={"upload_s": 0.2})
    connection = http.client.HTTPConnection(*server.address)
    connection.putrequest("POST", CHAT)
    connection.putheader("Content-Length", "100")
    connection.endheaders(b"{")
    reply = connection.getresponse()
    assert (reply.status, json.load(reply)["error"]["code"]) == (408, "upload_timeout")
    connection.close()


def test_the_end_waits_for_calls_in_progress(start):
    server = start(slow("x" * 30), FakeEmbedder(), limits={"grace_s": 10})
    assert server.get("/ready").body["status"] == "ready"
    thread, replies = in_background(server)
    assert wait_for(lambda: server.core.steps > 1)
    ended = server.drain()
    assert wait_for(lambda: server.get("/ready").status == 503)
    assert server.get("/health").status == 200, "it is alive, and says so"
    for path, body in ((CHAT, BODY), ("/v1/embeddings", {"input": "x"})):
        reply = server.post(path, body)
        assert (reply.status, reply.body["error"]["code"]) == (503, "shutting_down")
        assert "Retry-After" in reply.headers
    ended.result(10)
    thread.join()
    assert replies[0].status == 200
    assert replies[0].body["usage"]["completion_tokens"] == 30


@pytest.mark.parametrize("hurry", [False, True])
def test_past_the_grace_calls_get_an_error(start, hurry):
    server = start(
        slow("x" * 2000), FakeEmbedder(delay_s=30), limits={"grace_s": 60 if hurry else 0.2}
    )
    calls = [in_background(server), in_background(server, "/v1/embeddings", {"input": "x"})]
    streams = []
    stream = threading.Thread(target=lambda: streams.append(server.stream(CHAT, BODY)))
    stream.start()
    assert wait_for(lambda: len(server.core.requests) == 2 and server.embedder.batches)
    begun = time.monotonic()
    server.drain(hurry).result(10)
    assert time.monotonic() - begun < 5
    for thread, replies in calls:
        thread.join(5)
        assert (replies[0].status, replies[0].body["error"]["code"]) == (503, "shutting_down")
    stream.join(5)
    assert streams[0][0][-1]["error"]["code"] == "shutting_down"


def test_limits_that_let_nothing_through():
    check_limits(Limits())
    for bad in (
        Limits(max_body_bytes=0),
        Limits(max_concurrency=0),
        Limits(timeout_s=0),
        Limits(grace_s=-1),
        Limits(grace_s=float("nan")),
    ):
        with pytest.raises(UsageError):
            check_limits(bad)


def test_an_open_server_that_others_can_reach_is_warned_of(caplog):
    from agentmem.engine import server

    assert all(is_local(host) for host in ("127.0.0.1", "::1", "localhost"))
    assert not any(is_local(host) for host in ("0.0.0.0", "192.0.2.7", "host.example"))
    with caplog.at_level(logging.WARNING), pytest.raises(UsageError):
        server.serve("m", None, "0.0.0.0", -1)
    assert "without API keys" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING), pytest.raises(UsageError):
        server.serve("m", None, "0.0.0.0", -1, keys=["k"])
    assert caplog.text == ""
