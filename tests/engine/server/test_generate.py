"""POST /v1/generate: token ids in, token ids out; and answers that are given beforehand."""

from __future__ import annotations

import jsonschema
import pytest

from tests.engine.server.fakes import BOS, FakeCore
from tests.engine.server.test_chat import SCHEMA

PATH = "/v1/generate"


def test_ids_in_ids_out(start):
    server = start(FakeCore(lambda request: "hi"))
    params = {"temperature": 0, "max_tokens": 9, "stop": ["#"], "logprobs": 1, "seed": 3}
    reply = server.post(PATH, {"token_ids": [BOS, 97], "sampling_params": params})
    assert reply.status == 200
    (choice,) = reply.body["choices"]
    assert choice["token_ids"] == [104, 105]
    assert choice["finish_reason"] == "stop"
    assert choice["logprobs"][0] == {"logprob": -0.25, "top": [[104, -0.25]]}
    jsonschema.validate(reply.body["usage"]["agentmem"], SCHEMA)
    request = server.core.requests[0]
    assert request.prompt == (BOS, 97)
    assert (request.sampling.max_tokens, request.sampling.seed) == (9, 3)
    assert request.request_id == reply.body["request_id"] == reply.headers["X-Request-Id"]


def test_a_stream_of_ids(start):
    server = start(FakeCore(lambda request: "hi"))
    events, _ = server.stream(PATH, {"token_ids": [97], "sampling_params": {"n": 2}})
    found = {0: [], 1: []}
    for event in events[:-1]:
        for choice in event["choices"]:
            found[choice["index"]] += choice["token_ids"]
    assert found == {0: [104, 105], 1: [104, 105]}
    assert events[-1]["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"token_ids": None}, "token_ids"),
        ({"token_ids": []}, "token_ids"),
        ({"token_ids": "ab"}, "token_ids"),
        ({"token_ids": [1.5]}, "token_ids"),
        ({"token_ids": [True]}, "token_ids"),
        ({"token_ids": [-1]}, "token_ids"),
        ({"token_ids": [999]}, "token_ids"),
        ({"sampling_params": 7}, "sampling_params"),
        ({"sampling_params": {"best_of": 2}}, "sampling_params"),
        ({"sampling_params": {"temperature": "x"}}, "temperature"),
        ({"sampling_params": {"max_tokens": 10**6}}, "token_ids"),
    ],
)
def test_refusals(start, fields, param):
    server = start(FakeCore())
    reply = server.post(PATH, {"token_ids": [1], **fields})
    assert (reply.status, reply.body["error"]["param"]) == (400, param)
    assert server.core.requests == []


def test_forced_answers_reach_the_engine_as_they_are(start):
    server = start(FakeCore(lambda request: "something else"))
    chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2, "stop": "o"}
    tool = {"type": "function", "function": {"name": "f"}}
    for path, body in (
        ("/v1/chat/completions", {**chat, "tools": [tool]}),
        ("/v1/completions", {"prompt": "x", "response_format": {"type": "json_object"}}),
    ):
        reply = server.post(path, {**body, "forced_text": "food"})
        assert reply.status == 200, reply
        choice = reply.body["choices"][0]
        text = choice["text"] if "text" in choice else choice["message"]["content"]
        assert text == "food"
        request = server.core.requests[-1]
        assert request.forced == tuple(b"food")
        assert (request.constraint, request.drafts) == (None, False)
        assert (request.sampling.max_tokens, request.sampling.stop) == (4, ())
    reply = server.post("/v1/completions", {"prompt": "x", "forced_tokens": [104, 105]})
    assert reply.body["choices"][0]["text"] == "hi"
    reply = server.post(PATH, {"token_ids": [1], "forced_tokens": [104, 105]})
    assert reply.body["choices"][0]["token_ids"] == [104, 105]
    reply = server.post("/v1/responses", {"input": "x", "forced_text": "hi"})
    assert reply.body["output"][0]["content"][0]["text"] == "hi"


def test_drafts_and_reuse_reach_the_engine(start):
    server = start(FakeCore())
    body = {"prompt": "x"}
    server.post("/v1/completions", body)
    server.post("/v1/completions", {**body, "drafts": False, "reuse": False})
    first, second = server.core.requests
    assert (first.drafts, first.reuse) == (True, True)
    assert (second.drafts, second.reuse) == (False, False)
