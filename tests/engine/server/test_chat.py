"""POST /v1/chat/completions: answers, streams, usage."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from agentmem.engine.request import Sampling
from tests.engine.server.fakes import FakeCore, FakeEmbedder

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hi"}]
SCHEMA = json.loads(
    (Path(__file__).parents[3] / "docs/schemas/usage.agentmem.json").read_text(encoding="utf-8")
)


def test_an_answer_and_what_it_cost(start):
    server = start(FakeCore(lambda request: "four"))
    reply = server.post(CHAT, {"model": "fake", "messages": MESSAGES})
    assert reply.status == 200
    (choice,) = reply.body["choices"]
    assert choice["message"]["content"] == "four"
    assert choice["finish_reason"] == "stop"
    usage = reply.body["usage"]
    prompt = len(server.core.requests[0].prompt)
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (prompt, 4)
    assert usage["total_tokens"] == prompt + 4
    assert usage["prompt_tokens_details"]["cached_tokens"] == 1
    told = usage["agentmem"]
    jsonschema.validate(told, SCHEMA)
    assert told["uncached_tokens"] + told["cached_tokens"] == prompt
    assert (told["model"], told["mode"], told["backend"]) == ("fake", "fp32", "torch")
    assert told["request_id"] == reply.body["id"] == reply.headers["X-Request-Id"]


def test_the_prompt_is_the_template(start):
    server = start(FakeCore())
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    messages = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": parts}]
    server.post(CHAT, {"messages": messages})
    text = server.core.tokenizer.decode(server.core.requests[0].prompt, skip_control=False)
    expected = "<bos><turn>system\nbe brief</turn><turn>user\none\ntwo</turn><turn>assistant\n"
    assert text == expected


def test_sampling_fields_reach_the_engine(start):
    server = start(FakeCore())
    asked = {
        "temperature": 0.5, "top_p": 0.9, "top_k": 40, "seed": 3, "max_completion_tokens": 7,
        "stop": ["a", "b"], "ignore_eos": True,
    }  # fmt: skip
    server.post(CHAT, {"messages": MESSAGES, **asked})
    server.post(CHAT, {"messages": MESSAGES, "max_tokens": 5, "stop": "x", "top_k": -1})
    first, second = (request.sampling for request in server.core.requests)
    assert first == Sampling(0.5, 0.9, 40, 3, 7, ("a", "b"), True)
    assert second == Sampling(1.0, 1.0, 0, None, 5, ("x",), False)


def test_a_capped_answer_says_length(start):
    reply = start(FakeCore()).post(CHAT, {"messages": MESSAGES, "max_tokens": 2})
    assert reply.body["choices"][0]["finish_reason"] == "length"
    assert reply.body["choices"][0]["message"]["content"] == "he"


def test_unknown_fields_are_ignored_and_idle_ones_are_named(start):
    body = {
        "messages": MESSAGES,
        "user": "u",
        "store": True,
        "metadata": {"a": 1},
        "logprobs": False,
    }
    idle = {"presence_penalty": 0.5, "frequency_penalty": 0, "repetition_penalty": 1.0}
    reply = start(FakeCore()).post(CHAT, {**body, **idle})
    assert reply.status == 200
    assert reply.body["usage"]["agentmem"]["ignored"] == ["presence_penalty"]


def test_a_stream_says_the_same_as_one_piece(start):
    server = start(FakeCore(lambda request: "naïve 😀 text"))
    events, _ = server.stream(
        CHAT, {"messages": MESSAGES, "stream_options": {"include_usage": True}}
    )
    whole = server.post(CHAT, {"messages": MESSAGES}).body
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    last = events[-1]
    assert last["choices"] == []
    jsonschema.validate(last["usage"]["agentmem"], SCHEMA)
    assert last["usage"]["total_tokens"] == whole["usage"]["total_tokens"]
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert all(event["usage"] is None for event in events[:-1])
    assert {event["object"] for event in events} == {"chat.completion.chunk"}


def test_a_stream_without_usage_tells_it_in_a_comment(start):
    server = start(FakeCore())
    events, lines = server.stream(CHAT, {"messages": MESSAGES})
    assert all("usage" not in event for event in events)
    (comment,) = [line for line in lines if line.startswith(": usage.agentmem ")]
    jsonschema.validate(json.loads(comment.removeprefix(": usage.agentmem ")), SCHEMA)


def test_streamed_choices_keep_their_index(start):
    server = start(FakeCore(lambda request: f"seed {request.sampling.seed}"))
    options = {"include_usage": True}
    events, _ = server.stream(
        CHAT, {"messages": MESSAGES, "n": 3, "seed": 7, "stream_options": options}
    )
    texts = ["", "", ""]
    for event in events[:-1]:
        (choice,) = event["choices"]
        texts[choice["index"]] += choice["delta"].get("content", "")
    assert texts == ["seed 7", "seed 8", "seed 9"]
    told = events[-1]["usage"]["agentmem"]
    assert len(told["choices"]) == 3
    for name in ("uncached_tokens", "generated_tokens", "decode_s", "step_share_s"):
        assert told[name] == pytest.approx(sum(c[name] for c in told["choices"]))
    assert told["cpu_s"] is None, "a sum over unknowns is unknown"
    jsonschema.validate(told, SCHEMA)


def test_an_engine_that_aborts_is_a_500_and_an_error_event(start):
    class Broken(FakeCore):
        def submit(self, request, on_delta, on_done):
            super().submit(request, on_delta, on_done)
            self.cancel(request.request_id)

    server = start(Broken(step_s=0.05))
    reply = server.post(CHAT, {"messages": MESSAGES})
    assert (reply.status, reply.body["error"]["code"]) == (500, "aborted")
    events, _ = server.stream(CHAT, {"messages": MESSAGES})
    assert events[-1]["error"]["code"] == "aborted"


def test_response_ids_are_numbers_or_the_clients_own(start):
    server = start(FakeCore(), FakeEmbedder())
    ids = [server.post(CHAT, {"messages": MESSAGES}).body["id"] for _ in range(2)]
    assert ids == ["chatcmpl-00000001", "chatcmpl-00000002"]
    own = server.post(CHAT, {"messages": MESSAGES}, {"X-Request-Id": "call-7"})
    assert own.body["id"] == "call-7"
    again = server.post(CHAT, {"messages": MESSAGES}, {"X-Request-Id": "call-7"})
    assert again.body["id"] == "chatcmpl-00000003", "an id in use is not given twice"
    bad = server.post(CHAT, {"messages": MESSAGES}, {"X-Request-Id": "a b"})
    assert bad.body["id"] == "chatcmpl-00000004"
    told = server.get("/agentmem/requests/call-7")
    assert told.body == own.body["usage"]["agentmem"]
    assert server.get("/agentmem/requests/nothing").status == 404


def test_the_real_client_chats_and_streams(start):
    client = start(FakeCore(lambda request: "yes"), FakeEmbedder()).client()
    reply = client.chat.completions.create(model="fake", messages=MESSAGES)
    assert reply.choices[0].message.content == "yes"
    stream = client.chat.completions.create(
        model="fake", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "yes"
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 3
    quiet = list(client.chat.completions.create(model="fake", messages=MESSAGES, stream=True))
    assert "".join(c.choices[0].delta.content or "" for c in quiet) == "yes"
    assert {m.id for m in client.models.list()} == {"fake", "fake-embed"}
