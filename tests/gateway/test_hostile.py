"""Requests no client should send: each is answered, booked once, and harms no later call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gateway.conftest import Meter, chat_body

DEEP = b'{"model": "fake-chat", "messages": ' + b"[" * 900 + b"]" * 900 + b"}"
NASTY: list[Any] = [0, -1, 10**40, True, "", "x", [], [[]], [None], [{}], {}, {"content": {}}]
FIELDS = [
    "model", "messages", "prompt", "input", "temperature", "n", "max_tokens", "seed", "stream",
    "stream_options", "tools", "tool_choice", "response_format", "text", "instructions",
    "session_id", "vllm_xargs",
]  # fmt: skip


TAILS = ["completions", "embeddings", "responses"]


@pytest.mark.parametrize(
    ("tail", "values"),
    [
        ("chat/completions", NASTY),
        *((tail, NASTY[::3]) for tail in TAILS),
        *(pytest.param(tail, NASTY, marks=pytest.mark.slow) for tail in TAILS),
    ],
)
def test_no_field_breaks_the_books(meter: Meter, tail: str, values: list[Any]) -> None:
    sent = 0
    whole = {"messages": chat_body()["messages"], "prompt": "x", "input": "x"}
    for name in FIELDS:
        for value in values:
            meter.post(tail, {"model": "fake-chat", **whole, name: value})
            sent += 1
    calls = meter.calls()
    assert len(calls) == sent
    for call in calls:
        for number in (call.max_tokens, call.own_input_tokens, call.sequences):
            assert number is None or abs(number) < 2**63


@pytest.mark.parametrize("raw", [b"[" * 200_000, b'{"a":' * 100_000, DEEP])
def test_deep_nesting_is_for_the_upstream_to_refuse(meter: Meter, raw: bytes) -> None:
    meter.post_raw("chat/completions", raw)
    assert meter.call().request_bytes == len(raw)


def test_a_body_that_is_not_compressed_as_it_says(meter: Meter) -> None:
    reply = meter.post("chat/completions", chat_body(), headers={"Content-Encoding": "gzip"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_body")
    meter.chat()
    assert meter.call().outcome == "ok"


@pytest.mark.parametrize("arguments", [{"a": "Å"}, ["x"], 5, "\ud800"])
def test_a_tool_calls_arguments_count_whatever_they_are(meter: Meter, arguments: Any) -> None:
    calls = [{"type": "function", "function": {"name": "f", "arguments": arguments}}]
    turns = [{"role": "assistant", "content": None, "tool_calls": calls}]
    meter.post_raw("chat/completions", json.dumps(chat_body(messages=turns)).encode())
    assert (meter.call().own_input_tokens or 0) > 0
