"""What is malformed is refused with a JSON error that names the field, before any work."""

from __future__ import annotations

import http.client
import json

import pytest

from tests.engine.server.fakes import FakeCore, FakeEmbedder

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "king", "content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content",
        ),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls"),
        ({"model": 5}, "model"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": 1.5}, "top_k"),
        ({"seed": "x"}, "seed"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"max_completion_tokens": -3}, "max_completion_tokens"),
        ({"n": 0}, "n"),
        ({"n": 33}, "n"),
        ({"best_of": 2, "n": 3}, "best_of"),
        ({"best_of": 2, "stream": True}, "stream"),
        ({"use_beam_search": True, "stream": True}, "stream"),
        ({"use_beam_search": 1}, "use_beam_search"),
        ({"length_penalty": "x"}, "length_penalty"),
        ({"stop": 5}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": []}, "stream_options"),
        ({"logprobs": 1}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"prompt_logprobs": 1}, "prompt_logprobs"),
        ({"forced_tokens": []}, "forced_tokens"),
        ({"forced_tokens": ["a"]}, "forced_tokens"),
        ({"forced_tokens": [999]}, "forced_tokens"),
        ({"forced_text": 7}, "forced_text"),
        ({"forced_text": "a", "forced_tokens": [1]}, "forced_text"),
        ({"forced_text": "a", "n": 2}, "forced_text"),
        ({"drafts": 1}, "drafts"),
        ({"reuse": "no"}, "reuse"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"schema": {"type": "foo"}},
                }
            },
            "response_format",
        ),
        ({"tools": {}}, "tools"),
        ({"tools": ["f"]}, "tools[0]"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0]"),
        ({"tools": [TOOL, TOOL]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": "sometimes"}, "tool_choice"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
            "tool_choice",
        ),
        ({"ignore_eos": 1}, "ignore_eos"),
        ({"chat_template_kwargs": 1}, "chat_template_kwargs"),
    ],
)
def test_chat_names_the_field(start, fields, param):
    server = start(FakeCore())
    body = {"messages": MESSAGES, **fields}
    reply = server.post(CHAT, body)
    assert reply.status == 400, reply
    error = reply.body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert error["message"]
    assert server.core.requests == []


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"7", b'{"a": NaN}', b"\xff\xfe", b"[" * 100_000]
)
def test_what_is_not_a_json_object(start, data):
    reply = start(FakeCore()).post(CHAT, data)
    assert (reply.status, reply.body["error"]["code"]) == (400, "invalid_json")


NASTY = [
    0, -1, 2**70, 1e999, -0.5, True, "", "x", "\x00", [], [[]], [None], [{}], {}, {"a": None},
    {"type": "json_schema", "json_schema": {"schema": {"minLength": "x", "type": "string"}}},
    {"type": "json_schema", "json_schema": {"schema": {"properties": [], "required": 5}}},
    {"type": "json_schema", "json_schema": {"schema": {"anyOf": 3, "$defs": [], "items": 1}}},
    [{"type": "function", "function": {"name": "f", "parameters": {"properties": 5}}}],
    [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}],
    {"messages": 1, "tools": 2},
]  # fmt: skip
FIELDS = [
    "model", "messages", "prompt", "input", "temperature", "top_p", "top_k", "seed", "n", "stop",
    "max_tokens", "max_completion_tokens", "stream", "stream_options", "logprobs", "tools",
    "tool_choice", "parallel_tool_calls", "response_format", "ignore_eos", "logit_bias",
    "session_id", "vllm_xargs", "cache_salt", "traffic_class", "chat_template_kwargs", "tokens",
    "add_special_tokens", "echo", "encoding_format", "dimensions", "add_generation_prompt",
    "top_logprobs", "best_of", "use_beam_search", "length_penalty", "forced_tokens", "forced_text",
    "drafts", "reuse", "token_ids", "sampling_params", "instructions", "text", "include",
    "previous_response_id", "max_output_tokens",
]  # fmt: skip


@pytest.mark.parametrize(
    "path",
    [
        CHAT,
        "/v1/completions",
        "/v1/embeddings",
        "/v1/responses",
        "/v1/generate",
        "/tokenize",
        "/detokenize",
    ],
)
def test_nothing_in_a_body_breaks_the_server(start, path):
    server = start(FakeCore(window=2000), FakeEmbedder())
    whole = {"messages": MESSAGES, "input": "x", "tokens": [1], "token_ids": [1], "max_tokens": 20}
    if path == "/v1/completions":
        whole["prompt"] = "x"
    connection = http.client.HTTPConnection(*server.address)  # one for all: it saves seconds
    for name in FIELDS:
        for value in NASTY:
            data = json.dumps({**whole, name: value}).replace("Infinity", "1e999").encode()
            connection.request("POST", path, data)
            reply = connection.getresponse()
            text = reply.read()
            assert reply.status in (200, 400, 404), (name, value, text)
            if reply.status != 200:
                assert json.loads(text)["error"]["message"], (name, value)
    connection.close()
    assert server.get("/health").body["in_flight"] == 0


def test_half_a_surrogate_pair_is_refused(start):
    data = b'{"messages": [{"role": "user", "content": "\\ud83d"}]}'
    reply = start(FakeCore(), FakeEmbedder()).post(CHAT, data)
    assert (reply.status, reply.body["error"]["code"]) == (400, "invalid_json")


def test_a_body_that_is_not_compressed_as_it_says(start):
    server = start(FakeCore(), FakeEmbedder())
    reply = server.post(CHAT, b"{}", {"Content-Encoding": "gzip"})
    assert (reply.status, reply.body["error"]["code"]) == (400, "invalid_body")


def test_past_the_window(start):
    server = start(FakeCore(window=100))
    for fields in (
        {"messages": [{"role": "user", "content": "x" * 200}]},
        {"messages": MESSAGES, "max_tokens": 90},
    ):
        error = server.post(CHAT, fields).body["error"]
        assert error["code"] == "context_length_exceeded"
        assert "100" in error["message"]
    assert server.post("/v1/completions", {"prompt": "x" * 200}).body["error"]["param"] == "prompt"
    assert server.core.requests == []
    assert server.post(CHAT, {"messages": MESSAGES, "max_tokens": 20}).status == 200


def test_routes_and_methods(start):
    server = start(FakeCore())
    reply = server.post("/v1/nothing", {})
    assert (reply.status, reply.body["error"]["code"]) == (404, "unknown_route")
    reply = server.get(CHAT)
    assert reply.status == 405
    assert "error" in reply.body


def test_a_body_past_the_limit(start):
    server = start(FakeCore(), max_body_bytes=1000)
    reply = server.post(CHAT, {"messages": [{"role": "user", "content": "x" * 2000}]})
    assert (reply.status, reply.body["error"]["code"]) == (413, "body_too_large")


def test_model_names(start):
    server = start(FakeCore(), FakeEmbedder(), aliases=frozenset({"gpt-4o-mini"}))
    for name in ("fake", "gpt-4o-mini", None, ""):
        assert server.post(CHAT, {"messages": MESSAGES, "model": name}).status == 200
    reply = server.post(CHAT, {"messages": MESSAGES, "model": "fake-embed"})
    assert (reply.status, reply.body["error"]["code"]) == (404, "model_not_found")
    assert "fake" in reply.body["error"]["message"]
    anything = start(FakeCore(), aliases=frozenset({"*"}))
    assert anything.post(CHAT, {"messages": MESSAGES, "model": "whatever"}).status == 200


def test_models_say_what_they_are(start):
    server = start(FakeCore(window=77), FakeEmbedder())
    chat, embed = server.get("/v1/models").body["data"]
    assert (chat["id"], chat["max_model_len"], chat["kind"]) == ("fake", 77, "chat")
    assert chat["agentmem"]["weights"] == "0" * 64
    assert (embed["id"], embed["max_model_len"], embed["kind"]) == ("fake-embed", 16, "embedding")
    assert embed["agentmem"]["dims"] == 4
    assert server.get("/v1/models/fake").body == chat
    assert server.get("/v1/models/nix").status == 404
