"""Recorded replies through an engine: what is asked of it, and what the system is given."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentmem.errors import DataError
from agentmem.gateway import Gateway, GatewayOptions, Upstream
from agentmem.gateway.asked import read_request
from agentmem.gateway.forcing import Forcing, recorded, written
from agentmem.gateway.record import Recording
from agentmem.gateway.record_format import Entry, Key
from agentmem.gateway.replay import Replay
from agentmem.gateway.replies import Choice
from agentmem.records import Row
from tests.fake import FakeUpstream, Fault
from tests.gateway.conftest import Meter, chat_body

MakeMeter = Callable[..., Meter]
LETTERS = Forcing("engine-chat", "engine-embed", lambda text: [ord(c) for c in text], end=0)
WHOLE = {"content-type": "application/json"}


def entry(message: dict[str, Any], finish: str = "stop", output: int | None = None) -> Entry:
    body: dict[str, Any] = {"choices": [{"message": message, "finish_reason": finish}]}
    body |= {} if output is None else {"usage": {"prompt_tokens": 1, "completion_tokens": output}}
    return whole(body)


def whole(body: dict[str, Any]) -> Entry:
    data = json.dumps(body).encode()
    key = Key("s", "u", "h", 0, 0)
    return Entry(key, 200, WHOLE, len(data), False, (data,), "whole", None, None, {})


def fields(given: Entry, forcing: Forcing = LETTERS, **body: Any) -> dict[str, Any]:
    asked = read_request("chat", json.dumps(chat_body(**body)).encode(), {})
    return forcing.fields(asked, given)


def test_text_is_forced_with_an_end_mark_unless_it_was_cut_off() -> None:
    assert fields(entry({"content": "ab"}))["forced_tokens"] == [97, 98, 0]
    assert fields(entry({"content": "ab"}, "length"))["forced_tokens"] == [97, 98]
    assert fields(entry({"content": ""}))["forced_tokens"] == [0]
    assert fields(entry({"content": "a"}))["model"] == "engine-chat"


def test_recorded_tokens_count_where_the_tokenizer_is_the_same() -> None:
    same = Forcing("m", "e", LETTERS.encode, 0, same_tokens=True)
    assert fields(entry({"content": "ab"}, output=2), same)["forced_tokens"] == [97, 98]
    assert fields(entry({"content": "ab"}, output=3), same)["forced_tokens"] == [97, 98, 0]
    choice = {"message": {"content": "ab"}, "finish_reason": "stop", "token_ids": [5, 6, 7]}
    assert fields(whole({"choices": [choice]}), same)["forced_tokens"] == [5, 6, 7]
    assert fields(whole({"choices": [choice]}))["forced_tokens"] == [97, 98, 0]


def test_an_engine_elsewhere_cuts_the_text_itself() -> None:
    there = Forcing("m", "e")
    assert fields(entry({"content": "ab"}), there)["forced_text"] == "ab"
    with pytest.raises(ValueError, match="empty"):
        fields(entry({"content": ""}), there)


def test_tool_calls_are_written_as_the_template_does() -> None:
    choice = Choice(["Well."], [], {0: ["f ", '{"a":', "1}"], 1: ["g "]}, "tool_calls")
    one, two = '{"name": "f", "arguments": {"a":1}}', '{"name": "g", "arguments": {}}'
    assert written(choice, False) == f"Well.\n{one}\n{two}"
    tagged = [f"<tool_call>\n{call}\n</tool_call>" for call in (one, two)]
    assert written(choice, True) == "\n".join(["Well.", *tagged])
    call = {"function": {"name": "f", "arguments": '{"a": 1}'}}
    given = entry({"content": None, "tool_calls": [call]}, "tool_calls")
    [said] = recorded(given).choices.values()
    assert written(said, False) == '{"name": "f", "arguments": {"a": 1}}'


def test_several_answers_cannot_be_produced() -> None:
    with pytest.raises(ValueError, match="several answers"):
        fields(entry({"content": "ab"}), n=2)


class Forced:
    """Records with the fake, then has the fake be the engine."""

    def __init__(self, make: MakeMeter, fake: FakeUpstream, path: Path) -> None:
        self.make, self.fake, self.path = make, fake, path
        fake.behaviour.cache = "agentmem"
        self._recording = Recording(path, {"id": "one"})
        self.live = make(record=self._recording)

    def engine(self) -> Meter:
        self.live.quiet()
        self._recording.close()
        self.fake.behaviour.model, self.fake.behaviour.embed_model = "engine-chat", "engine-embed"
        self.fake.behaviour.on_chat = lambda body: "other words than those"
        return self.make(replay=Replay(self.path), forcing=LETTERS)

    def ending(self) -> Meter:
        """The same, for a test that ends it in failure itself."""
        self.engine()
        options = GatewayOptions(replay=Replay(self.path), forcing=LETTERS)
        rows: list[Row] = []
        gateway = Gateway(Upstream(self.fake.url), rows.append, options=options)
        gateway.start()
        meter = Meter(gateway, self.fake, rows)
        meter.open(meter.scope)
        return meter


@pytest.fixture
def forced(make_meter: MakeMeter, fake: FakeUpstream, tmp_path: Path) -> Forced:
    return Forced(make_meter, fake, tmp_path / "calls.jsonl")


@pytest.mark.parametrize("stream", [False, True])
def test_the_reply_is_the_recorded_one_and_the_cost_the_engines(
    forced: Forced, stream: bool
) -> None:
    more: dict[str, Any] = {"stream": True} if stream else {}
    first = forced.live.chat("count to ten", **more).content
    meter = forced.engine()
    assert meter.chat("count to ten", **more).content == first
    then, now = forced.live.call(), meter.call()
    [_, served] = forced.fake.bill.of("chat")
    assert "".join(map(chr, served.body["forced_tokens"][:-1])) in first.decode() or stream
    assert served.body["model"] == "engine-chat"
    assert now.response_hash == then.response_hash and now.own_output_tokens == (
        then.own_output_tokens
    )
    assert now.input_tokens == served.input_tokens
    assert now.output_tokens == served.output_tokens != then.output_tokens
    assert now.engine is not None and now.engine["forced"] is True
    assert now.engine["prefill_s"] is not None and now.ttft_s is not None
    assert now.engine["recorded"]["output_tokens"] == then.output_tokens


def test_a_stream_keeps_the_engines_pace(forced: Forced) -> None:
    forced.live.chat("count to ten", stream=True)
    meter = forced.engine()
    forced.fake.behaviour.first_token_s = 0.3
    forced.fake.behaviour.token_s = 0.05
    meter.chat("count to ten", stream=True)
    call = meter.call()
    assert call.ttft_s is not None and 0.25 < call.ttft_s < call.latency_s - 0.1


def test_vectors_are_the_recorded_ones(forced: Forced) -> None:
    body = {"model": "fake-embed", "input": ["a", "b"], "dimensions": 32}
    first = forced.live.post("embeddings", body).content
    meter = forced.engine()
    forced.fake.behaviour.dims = 8
    assert meter.post("embeddings", body).content == first
    [_, served] = forced.fake.bill.of("embedding")
    assert served.body["model"] == "engine-embed" and served.body["dimensions"] is None
    assert meter.call().input_tokens == served.input_tokens


def test_errors_are_served_as_recorded_and_no_engine_works(forced: Forced) -> None:
    forced.fake.fail(Fault("status", status=503))
    assert forced.live.chat().status_code == 503
    meter = forced.engine()
    assert meter.chat().status_code == 503
    assert len(forced.fake.bill.of("chat")) == 1
    assert meter.call().engine is not None and "forced" not in (meter.call().engine or {})


def test_an_unknown_request_is_a_clear_failure(forced: Forced) -> None:
    forced.live.chat("one")
    meter = forced.ending()
    assert meter.chat("two").json()["error"]["code"] == "not_recorded"
    with pytest.raises(DataError, match="no reply is recorded"):
        meter.gateway.stop()
    assert len(forced.fake.bill.of("chat")) == 1


def test_a_refusal_of_the_engine_is_final(forced: Forced) -> None:
    forced.live.chat("one")
    meter = forced.ending()
    forced.fake.fail(Fault("overflow"))
    assert meter.chat("one").status_code == 422
    with pytest.raises(DataError, match="the engine cannot produce the recorded reply"):
        meter.gateway.stop()


def test_an_engine_that_fails_is_asked_again(forced: Forced) -> None:
    first = forced.live.chat("one").content
    meter = forced.engine()
    forced.fake.fail(Fault("reset"))
    assert meter.chat("one").status_code == 502
    assert meter.gateway.transport_failures(meter.scope) == 1
    retried = meter.post("chat/completions", chat_body("one"), headers={"x-retry-count": "1"})
    assert retried.content == first
    assert [c.attempt for c in meter.calls()] == [0, 1]
