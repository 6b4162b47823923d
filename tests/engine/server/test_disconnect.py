"""A client that goes away stops the engine, and nothing stays behind."""

from __future__ import annotations

import http.client
import json
import socket
import time

import pytest

from tests.engine.server.fakes import FakeCore

MESSAGES = [{"role": "user", "content": "count"}]


def wait_for(condition, seconds: float = 5.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 2])
def test_leaving_cancels_the_engine(start, stream, n):
    server = start(FakeCore(lambda request: "x" * 5000, step_s=0.01))
    body = json.dumps({"messages": MESSAGES, "stream": stream, "n": n, "max_tokens": 4000})
    connection = http.client.HTTPConnection(*server.address)
    connection.request("POST", "/v1/chat/completions", body, {"X-Request-Id": "gone"})
    if stream:
        connection.getresponse().read(200)
    assert wait_for(lambda: server.core.steps > 5)
    connection.sock.shutdown(socket.SHUT_RDWR)
    assert wait_for(lambda: len(server.core.records) == n), "the engine was told"
    assert {r.finish_reason for r in server.core.records.values()} == {"abort"}
    steps = server.core.steps
    time.sleep(0.1)
    assert server.core.steps == steps, "and stopped"
    assert wait_for(lambda: server.get("/health").body["in_flight"] == 0)
    told = server.get("/agentmem/requests/gone").body
    assert 0 < told["generated_tokens"] < 4000 * n, "what was computed can still be asked for"


def test_the_others_go_on(start):
    server = start(FakeCore(lambda request: "x" * 60, step_s=0.01))
    gone = http.client.HTTPConnection(*server.address)
    gone.request("POST", "/v1/chat/completions", json.dumps({"messages": MESSAGES}))
    assert wait_for(lambda: server.core.steps > 1)
    gone.sock.shutdown(socket.SHUT_RDWR)
    reply = server.post("/v1/chat/completions", {"messages": MESSAGES})
    assert reply.body["usage"]["completion_tokens"] == 60
