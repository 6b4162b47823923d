"""Identity carried from an HTTP request into the engine's requests and records."""

from __future__ import annotations

from tests.engine.server.fakes import FakeCore, FakeEmbedder

MESSAGES = [{"role": "user", "content": "hi"}]
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def test_body_wins_and_reaches_request_and_record(start):
    server = start(FakeCore())
    for path, body in ((CHAT, {"messages": MESSAGES}), (COMPLETIONS, {"prompt": "hi"})):
        reply = server.post(
            path, {**body, "session_id": "body-session"}, {"X-Session-ID": "header-session"}
        )
        assert reply.body["usage"]["agentmem"]["session_id"] == "body-session"
        request = server.core.requests[-1]
        assert request.session_id == "body-session"
        assert server.core.records[request.request_id].session_id == "body-session"


def test_lower_case_header_and_xargs(start):
    server = start(FakeCore())
    server.post(CHAT, {"messages": MESSAGES}, {"x-session-id": "h"})
    server.post(CHAT, {"messages": MESSAGES, "vllm_xargs": {"session_id": "x"}})
    server.post(CHAT, {"messages": MESSAGES}, {"X-Correlation-ID": "c"})
    assert [r.session_id for r in server.core.requests] == ["h", "x", None]


def test_a_number_or_a_control_character_is_a_400(start):
    server = start(FakeCore())
    for value in (7, "a\nb", "x" * 257):
        reply = server.post(CHAT, {"messages": MESSAGES, "session_id": value})
        assert reply.status == 400
        assert reply.body["error"]["param"] == "session_id"
    assert server.core.requests == []


def test_children_of_n_carry_the_session_and_move_the_seed(start):
    server = start(FakeCore())
    reply = server.post(CHAT, {"messages": MESSAGES, "n": 2, "seed": 5, "session_id": "s"})
    parent = reply.body["id"]
    requests = sorted(server.core.requests, key=lambda r: r.request_id)
    assert [r.request_id for r in requests] == [f"0_{parent}", f"1_{parent}"]
    assert [r.session_id for r in requests] == ["s", "s"]
    assert [r.sampling.seed for r in requests] == [5, 6]
    assert [c["index"] for c in reply.body["choices"]] == [0, 1]
    told = reply.body["usage"]["agentmem"]
    assert [c["request_id"] for c in told["choices"]] == [f"0_{parent}", f"1_{parent}"]
    assert told["request_id"] == parent


def test_every_prompt_of_a_list_is_a_request_of_the_session(start):
    server = start(FakeCore(lambda request: f"<{bytes(request.prompt[1:]).decode()}>"))
    reply = server.post(COMPLETIONS, {"prompt": ["a", "bb", "ccc"], "session_id": "s"})
    assert [c["text"] for c in reply.body["choices"]] == ["<a>", "<bb>", "<ccc>"]
    assert {r.session_id for r in server.core.requests} == {"s"}
    assert len({r.request_id for r in server.core.requests}) == 3
    assert reply.body["usage"]["prompt_tokens"] == 2 + 3 + 4


def test_the_same_session_may_run_twice_at_once(start):
    import threading

    server = start(FakeCore(step_s=0.02))
    replies = []
    body = {"messages": MESSAGES, "session_id": "s"}
    threads = [
        threading.Thread(target=lambda: replies.append(server.post(CHAT, body))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [r.status for r in replies] == [200] * 3


def test_a26_an_embeddings_session_reaches_its_record_only(start):
    server = start(FakeCore(), FakeEmbedder())
    plain = server.post("/v1/embeddings", {"input": "a"}).body
    assert plain["usage"]["agentmem"]["session_id"] is None
    reply = server.post("/v1/embeddings", {"input": "a", "session_id": "s"})
    assert reply.status == 200
    assert reply.body["usage"]["agentmem"]["session_id"] == "s"
    assert reply.body["data"] == plain["data"]
    assert server.post("/v1/embeddings", {"input": "a", "session_id": 7}).status == 400
    assert server.core.requests == []


def test_traffic_class_and_tenant(start):
    server = start(FakeCore(), FakeEmbedder())
    headers = {"X-Agentmem-Traffic": "background", "Authorization": "Bearer k"}
    reply = server.post(CHAT, {"messages": MESSAGES}, headers)
    assert reply.body["usage"]["agentmem"]["traffic_class"] == "background"
    server.post(CHAT, {"messages": MESSAGES, "cache_salt": "salt"}, headers)
    first, second = server.core.requests
    assert first.traffic_class == "background"
    assert first.tenant is not None and first.tenant.startswith("key-")
    assert second.tenant == "salt"
    reply = server.post("/v1/embeddings", {"input": "a"}, headers)
    assert reply.body["usage"]["agentmem"]["traffic_class"] == "background"
    assert server.post(CHAT, {"messages": MESSAGES, "traffic_class": "x"}).status == 400
