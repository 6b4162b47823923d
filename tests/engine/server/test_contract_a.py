"""Contract A by its case numbers, over HTTP: whose id wins, and where it arrives."""

from __future__ import annotations

import threading

import pytest

from agentmem.engine.api.fields import Fields
from agentmem.engine.api.prompts import read_identity
from tests.engine.server.fakes import EOS, FakeCore

ASK = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/completions": {"prompt": "hi"},
    "/v1/responses": {"input": "hi"},
}
X = {"vllm_xargs": {"session_id": "xargs-session"}}
H = {"X-Session-ID": "header-session"}
B = {"session_id": "body-session"}
CORRELATION = {"X-Correlation-ID": "c"}
CASES = {
    "A1 body and header": (B, H, "body-session"),
    "A2 header only": ({}, H, "header-session"),
    "A3 lower case": ({}, {"x-session-id": "low"}, "low"),
    "A4 correlation and xargs": (X, CORRELATION, "xargs-session"),
    "A5 correlation only": ({}, CORRELATION, None),
    "A7 header and xargs": (X, H, "header-session"),
    "A9 empty body and header": ({"session_id": "", **X}, {"X-Session-ID": ""}, "xargs-session"),
    "A10 xargs of another type": (
        {"session_id": "", "vllm_xargs": {"session_id": 7}},
        {},
        None,
    ),
    "A13 all three": ({**B, **X}, H, "body-session"),
}


@pytest.mark.parametrize("path", ASK)
def test_a1_to_a13_on_every_surface(start, path):
    server = start(FakeCore())
    for case, (body, headers, expected) in CASES.items():
        reply = server.post(path, {**ASK[path], **body}, headers)
        assert reply.status == 200, (case, reply)
        request = server.core.requests[-1]
        assert request.session_id == expected, case
        # A19: what the engine's own record carries is what the request carried
        assert server.core.records[request.request_id].session_id == expected, case
        assert reply.body["usage"]["agentmem"]["session_id"] == expected, case


def test_a6_xargs_without_a_raw_request():
    assert read_identity(Fields(X), {}, False).session_id == "xargs-session"


@pytest.mark.parametrize("path", ASK)
@pytest.mark.parametrize("value", [7, ["s"], {"a": 1}, True, "x" * 257, "a\nb", "\x00", "\x7f"])
def test_a11_what_is_no_id_is_a_400(start, path, value):
    server = start(FakeCore())
    reply = server.post(path, {**ASK[path], "session_id": value})
    assert (reply.status, reply.body["error"]["param"]) == (400, "session_id")
    assert server.core.requests == []


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a14_children_of_n(start, path):
    server = start(FakeCore())
    reply = server.post(path, {**ASK[path], "n": 2, "seed": 5, **B})
    parent = reply.body["id"]
    children = sorted(server.core.requests, key=lambda r: r.request_id)
    assert [r.request_id for r in children] == [f"0_{parent}", f"1_{parent}"]
    assert [r.session_id for r in children] == ["body-session"] * 2
    assert [r.sampling.seed for r in children] == [5, 6]
    server.post(path, {**ASK[path], "n": 2, **B})
    assert [r.sampling.seed for r in server.core.requests[-2:]] == [None, None]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a15_every_step_of_every_beam(start, path):
    core = FakeCore(likely=lambda prefix: [(97, -0.2), (98, -0.4), (EOS, -9.0), (99, -9.5)])
    server = start(core)
    body = {**ASK[path], "use_beam_search": True, "n": 2, "max_tokens": 3, **B}
    reply = server.post(path, body, {"X-Agentmem-Traffic": "background"})
    assert reply.status == 200, reply
    requests = core.requests
    assert len(requests) == 1 + 2 + 2, "one beam, then two at each step"
    assert {r.session_id for r in requests} == {"body-session"}
    assert {r.traffic_class for r in requests} == {"background"}
    assert len({r.request_id for r in requests}) == len(requests)
    assert {(r.sampling.max_tokens, r.sampling.temperature) for r in requests} == {(1, 0.0)}
    assert reply.body["usage"]["agentmem"]["engine_requests"] == 5


def test_a16_every_prompt_of_a_list(start):
    server = start(FakeCore())
    reply = server.post("/v1/completions", {"prompt": ["a", "b", "c"], **B})
    assert reply.status == 200
    assert [r.session_id for r in server.core.requests] == ["body-session"] * 3
    assert len({r.request_id for r in server.core.requests}) == 3


@pytest.mark.parametrize("path", ["/v1/generate", "/inference/v1/generate"])
def test_a18_token_level_requests_go_by_the_header_alone(start, path):
    server = start(FakeCore())
    for body in ({}, B, X, {"session_id": 7}, {**B, **X}):
        reply = server.post(path, {"token_ids": [1, 2], **body}, H)
        assert reply.status == 200, reply
        assert server.core.requests[-1].session_id == "header-session"
        server.post(path, {"token_ids": [1, 2], **body})
        assert server.core.requests[-1].session_id is None
    reply = server.post(path, {"token_ids": [1]}, {"X-Session-ID": "x" * 257})
    assert (reply.status, reply.body["error"]["param"]) == (400, "session_id")


@pytest.mark.parametrize("path", ASK)
def test_a28_two_at_once_both_run(start, path):
    server = start(FakeCore(step_s=0.02))
    replies = []
    threads = [
        threading.Thread(target=lambda: replies.append(server.post(path, {**ASK[path], **B})))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [r.status for r in replies] == [200] * 3


def test_no_response_says_the_id_outside_the_engines_account(start):
    server = start(FakeCore())
    for path, ask in ASK.items():
        reply = server.post(path, {**ask, **B})
        del reply.body["usage"]["agentmem"]
        assert "body-session" not in str(reply.body), path
        assert "body-session" not in str(reply.headers), path
        _, lines = server.stream(path, {**ask, **B}) if path != "/v1/responses" else (None, [])
        told = [line for line in lines if "body-session" in line]
        assert all(line.startswith(": usage.agentmem") for line in told)
    assert "body-session" not in server.get("/metrics").body
