"""Event streams cut anywhere, replies in every shape, retries of equal bodies."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.gateway.asked import endpoint_of, read_request
from agentmem.gateway.attempts import Attempts, retry_count
from agentmem.gateway.client import Address, parse_address
from agentmem.gateway.replies import Reply
from agentmem.gateway.streams import EventSplitter, Progress, is_usage_only, parse_event

STREAM = (
    b': keep-alive\n\ndata: {"choices":[{"index":0,"delta":{"content":"a\xc3\xbc"}}]}\n\n'
    b'event: x\ndata: {"choices":\ndata: []}\n\ndata: [DONE]\n\n'
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=8), st.booleans())
def test_events_are_the_same_however_the_bytes_are_cut(cuts: list[int], crlf: bool) -> None:
    whole = STREAM.replace(b"\n", b"\r\n") if crlf else STREAM
    edges = [0, *sorted(cuts), len(whole)]
    splitter = EventSplitter()
    events = [
        event
        for start, end in itertools.pairwise(edges)
        for event in splitter.feed(whole[start:end])
    ]
    assert b"".join(e.raw for e in events) == whole and splitter.rest == b""
    assert [e.json() for e in events] == [
        None,
        {"choices": [{"index": 0, "delta": {"content": "aü"}}]},
        {"choices": []},
        None,
    ]
    assert events[-1].data == b"[DONE]"


def test_an_unfinished_event_waits() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b'data: {"a": 1}') == []
    assert splitter.rest == b'data: {"a": 1}'


@pytest.mark.parametrize(
    ("data", "only"),
    [
        ({"choices": [], "usage": {"prompt_tokens": 1}}, True),
        ({"choices": [], "usage": None}, False),
        ({"choices": [], "prompt_filter_results": []}, False),
        ({"choices": [{"delta": {}}], "usage": {"prompt_tokens": 1}}, False),
        ({"type": "response.completed", "response": {"usage": {}}}, False),
        ({"choices": [{"delta": {"content": '"usage"'}}]}, False),
    ],
)
def test_only_the_extra_usage_chunk_is_ours(data: dict[str, Any], only: bool) -> None:
    assert is_usage_only(parse_event(b"data: " + json.dumps(data).encode() + b"\n\n")) is only


def event(delta: dict[str, Any], finish: str | None = None, index: int = 0) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def test_a_stream_ends_when_every_answer_has_ended() -> None:
    progress = Progress(answers=2)
    progress.note([parse_event(event({"role": "assistant", "content": ""}))])
    assert not progress.began
    progress.note([parse_event(event({"content": '"finish_reason": "stop"'}))])
    assert progress.began and not progress.ended
    progress.note([parse_event(event({}, "stop", 0))])
    assert not progress.ended
    progress.note([parse_event(event({}, "length", 1))])
    assert progress.ended


def test_streamed_tool_calls_equal_whole_ones() -> None:
    streamed, whole = Reply(), Reply()
    deltas: list[dict[str, Any]] = [
        {"tool_calls": [{"index": 0, "id": "1", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]},
        {"tool_calls": [{"index": 1, "id": "2", "function": {"name": "g", "arguments": "{}"}}]},
    ]
    for delta in deltas:
        streamed.feed(parse_event(event(delta)).json() or {})
    calls = [
        {"id": "x", "function": {"name": "f", "arguments": '{"a": 1}'}},
        {"id": "y", "function": {"name": "g", "arguments": "{}"}},
    ]
    whole.feed({"choices": [{"index": 0, "message": {"content": None, "tool_calls": calls}}]})
    assert streamed.digest() == whole.digest() is not None
    assert streamed.texts() == whole.texts() == ['f {"a": 1}', "g {}"]


def test_texts_of_a_request() -> None:
    body = {
        "messages": [
            {"role": "system", "content": "one"},
            {"role": "user", "content": [{"type": "text", "text": "two"}, {"type": "image_url"}]},
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
        ]
    }
    asked = read_request("chat", json.dumps(body).encode(), {})
    assert asked.texts() == ["one", "two", "f", "{}"]


@pytest.mark.parametrize(
    ("given", "sequences", "ids"),
    [("a", 1, 0), (["a", "b"], 2, 0), ([1, 2, 3], 1, 3), ([[1, 2], [3]], 2, 3), (None, None, 0)],
)
def test_inputs_of_an_embedding(given: Any, sequences: int | None, ids: int) -> None:
    asked = read_request("embedding", json.dumps({"input": given}).encode(), {})
    assert (asked.sequences, asked.token_ids()) == (sequences, ids)


@pytest.mark.parametrize("raw", [b"", b"[1]", b"{", b"\xff"])
def test_bodies_that_are_no_object(raw: bytes) -> None:
    asked = read_request("chat", raw, {})
    assert asked.body is None and asked.texts() == [] and asked.model is None


def test_addresses() -> None:
    assert parse_address("/s/a%2Fb/v1/chat/completions") == Address("a/b", None, "chat/completions")
    assert parse_address("/s/a/op%201/v1/models") == Address("a", "op 1", "models")
    assert parse_address("/s/a/v1/v1/x") == Address("a", None, "v1/x")
    assert parse_address("/s/a/b/c/v1/x") is None
    assert endpoint_of("GET", "responses") == "other" != endpoint_of("POST", "responses")


def test_retries_join_a_call_that_failed_before_one_still_running() -> None:
    attempts = Attempts()
    running = attempts.begin("h", 0, "c1")
    failed = attempts.begin("h", 0, "c2")
    failed.state = "failed"
    assert attempts.begin("h", 1, "c3") is failed
    assert attempts.begin("h", 1, "c4") is running
    assert attempts.begin("h", 1, "c5").logical_id == "c5", "the first attempt was never seen"
    assert attempts.begin("other", 1, "c6").logical_id == "c6"
    assert [running.occurrence, failed.occurrence] == [0, 1]


@pytest.mark.parametrize(
    ("headers", "count"),
    [
        ({"x-stainless-retry-count": "2"}, 2),
        ({"x-retry-count": "1"}, 1),
        ({"x-stainless-retry-count": "soon"}, None),
        ({}, None),
    ],
)
def test_retry_hints(headers: dict[str, str], count: int | None) -> None:
    assert retry_count(headers) == count
