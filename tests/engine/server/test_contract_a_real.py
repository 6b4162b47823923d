"""Contract A where it meets the engine: shared blocks, preemption, aborts, sessions that end."""

from __future__ import annotations

import http.client
import json
import socket
import threading

import pytest
import torch

from agentmem.engine.core import EngineCore
from agentmem.engine.kv.layout import GroupSpec
from agentmem.engine.kv.manager import KVManager
from tests.engine.core.drive import start as begin
from tests.engine.server.conftest import Server
from tests.engine.server.real import toy
from tests.engine.server.test_disconnect import wait_for

PATH = "/v1/completions"
LONG = "the quick brown fox jumps over the lazy dog " * 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.set_num_threads(1)
    return toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def server(folder):
    server = Server(EngineCore.load(folder, mode="fp32", threads=1), None)
    yield server
    server.stop()


def ask(prompt, session=None, salt="t", **fields):
    named = {} if session is None else {"session_id": session}
    fixed = {"temperature": 0, "max_tokens": 4, "ignore_eos": True}
    return {"prompt": prompt, "cache_salt": salt, **fixed, **named, **fields}


def cached(reply):
    assert reply.status == 200, reply
    return reply.body["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_a20_ids_never_enter_the_hash():
    kv = KVManager((GroupSpec((0,), 1, 8),), blocks=16, block_size=4)
    tokens = list(range(9))
    tables = []
    for session, expected in (("a", 0), ("b", 8)):
        held = kv.open(tokens, tenant=None, session=session)
        assert held.cached == expected
        assert kv.grow(held, 9)
        kv.commit(held, tokens, 9)
        tables.append(kv.table(held, 0)[:2])
        keys = held.keys[:2]
        kv.close(held)
        tables.append(keys)
    assert tables[0] == tables[2], "the same blocks"
    assert tables[1] == tables[3], "under the same hashes"


def test_a20_over_http_and_tenants_share_nothing(server):
    assert cached(server.post(PATH, ask(LONG, "a", "a20"))) == 0
    assert cached(server.post(PATH, ask(LONG, "b", "a20"))) >= 128
    assert cached(server.post(PATH, ask(LONG, "a", "another"))) == 0
    assert cached(server.post(PATH, ask(LONG, "b", "a20", reuse=False))) == 0


def test_a25_a_preempted_request_keeps_its_session(folder):
    core = EngineCore.load(folder, mode="fp32", threads=1, window=64, cache_bytes=1)
    try:
        runs = [
            begin(core, [97 + i] * 20, session_id=f"s{i}", tenant="t", max_tokens=40)
            for i in range(3)
        ]
        records = [run.wait().record for run in runs]
        assert sum(record.preemptions for record in records) > 0, "the cache was meant to be short"
        assert [record.session_id for record in records] == ["s0", "s1", "s2"]
        assert {s.session_id for s in core.sessions("t")} == {"s0", "s1", "s2"}
        assert [len(run.tokens) for run in runs] == [40, 40, 40]
    finally:
        core.close()


def test_a28_two_at_once_on_one_id_both_run(server):
    replies = []
    body = ask(LONG, "twice", "a28", max_tokens=24)
    threads = [
        threading.Thread(target=lambda: replies.append(server.post(PATH, body))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [r.status for r in replies] == [200] * 3
    assert len({r.body["choices"][0]["text"] for r in replies}) == 1
    (stats,) = server.get("/v1/sessions?cache_salt=a28").body["data"]
    assert (stats["id"], stats["requests"], stats["running"]) == ("twice", 3, 0)


def test_a29_an_abort_leaves_the_session_as_it_was(server):
    first = server.post(PATH, ask(LONG, "s", "a29"))
    gone = http.client.HTTPConnection(*server.address)
    gone.request("POST", PATH, json.dumps(ask(LONG + "more", "s", "a29", max_tokens=300)))
    assert wait_for(lambda: server.get("/health").body["in_flight"] == 1)
    gone.sock.shutdown(socket.SHUT_RDWR)
    assert wait_for(lambda: server.get("/health").body["in_flight"] == 0)
    again = server.post(PATH, ask(LONG, "s", "a29"))
    assert cached(again) >= 128
    assert again.body["choices"] == first.body["choices"]


def test_a30_ending_a_session_frees_only_what_is_its_own(server):
    tail_a, tail_b = "alpha " * 10, "beta " * 12
    server.post(PATH, ask(LONG + tail_a, "a", "a30"))
    server.post(PATH, ask(LONG + tail_b, "b", "a30"))
    url = "/v1/sessions/a?cache_salt=a30"
    before = server.get(url).body
    assert 0 < before["bytes_unique"] < before["bytes_held"]
    assert server.delete("/v1/sessions/a").status == 404, "without the salt it is another's"
    told = server.delete(url).body
    assert told["freed_bytes"] == before["bytes_unique"]
    assert server.get(url).status == 404
    assert cached(server.post(PATH, ask(LONG + tail_b, "b", "a30"))) >= 128 + 48
    shared = cached(server.post(PATH, ask(LONG + tail_a, None, "a30")))
    assert 128 <= shared < 160, "the beginning is b's as well, the tail is gone"


def test_a14_to_a18_on_the_engine(server):
    reply = server.post(PATH, ask([[97] * 40, [98] * 40], "many", "surfaces", n=2, temperature=1))
    accounts = reply.body["usage"]["agentmem"]["choices"]
    assert [a["session_id"] for a in accounts] == ["many"] * 4
    beams = server.post(PATH, ask("abc", "many", "surfaces", use_beam_search=True, n=2))
    assert beams.status == 200 and len(beams.body["choices"]) == 2
    greedy = server.post(PATH, ask("abc", None, "surfaces", logprobs=1)).body["choices"][0]
    one = server.post(PATH, ask("abc", None, "surfaces", use_beam_search=True)).body["choices"][0]
    assert one["text"] == greedy["text"]
    assert one["cumulative_logprob"] == pytest.approx(
        sum(greedy["logprobs"]["token_logprobs"]), abs=1e-2
    )
    generated = server.post(
        "/v1/generate",
        {"token_ids": [97] * 40, "sampling_params": {"max_tokens": 2}, "cache_salt": "surfaces"},
        {"X-Session-ID": "many"},
    )
    assert generated.body["usage"]["agentmem"]["session_id"] == "many"
    forced = server.post(PATH, ask("abc", None, "surfaces", forced_text="hello", max_tokens=1))
    assert forced.body["choices"][0]["text"] == "hello"
    answered = server.post("/v1/responses", {"input": "x", "max_output_tokens": 4})
    assert answered.status == 200, answered
