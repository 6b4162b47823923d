"""Every hard calling pattern against the upstream that knows the true bill: exact."""

from __future__ import annotations

import http.client
import json
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai
import pytest

from agentmem.gateway import Upstream
from agentmem.records import Call
from tests.fake import Fault
from tests.gateway.conftest import Meter, chat_body, eventually

MESSAGES: Any = [{"role": "user", "content": "where did Ada put the blue key?"}]


def client(meter: Meter, **more: object) -> openai.OpenAI:
    return openai.OpenAI(base_url=meter.url, api_key="placeholder", **more)  # type: ignore[arg-type]


def tokens(calls: list[Call]) -> tuple[int, int]:
    """Sums of a set of calls whose usage is all known."""
    inputs, outputs = [c.input_tokens for c in calls], [c.output_tokens for c in calls]
    assert None not in inputs + outputs
    return sum(i or 0 for i in inputs), sum(o or 0 for o in outputs)


def test_a_whole_reply(meter: Meter) -> None:
    meter.gateway.set_phase(meter.scope, "generation", "measured", "q1")
    reply = client(meter).chat.completions.create(model="fake-chat", messages=MESSAGES)
    call = meter.call()
    assert tokens([call]) == meter.fake.bill.tokens() == (12, 8)
    assert (call.outcome, call.status, call.finish_reason) == ("ok", 200, "stop")
    assert (call.phase, call.bucket, call.unit) == ("generation", "measured", "q1")
    assert call.own_input_tokens == 8 and call.own_output_tokens == 8
    assert call.tokenizer == "words"
    assert call.ttft_s is None
    assert call.latency_s >= (call.overhead_s or 0) > 0
    assert reply.choices[0].message.content


@pytest.mark.parametrize("asked", [True, False])
def test_a_stream_with_and_without_usage(meter: Meter, asked: bool) -> None:
    more: Any = {"stream_options": {"include_usage": True}} if asked else {}
    stream = client(meter).chat.completions.create(
        model="fake-chat", messages=MESSAGES, stream=True, **more
    )
    chunks = list(stream)
    call = meter.call()
    assert tokens([call]) == meter.fake.bill.tokens() == (12, 8)
    assert (call.outcome, call.stream, call.finish_reason) == ("ok", True, "stop")
    assert call.ttft_s is not None and 0 < call.ttft_s <= call.latency_s
    assert [c.usage is not None for c in chunks].count(True) == (1 if asked else 0)
    assert all(c.choices for c in chunks) or asked
    said = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert call.own_output_tokens == len(said.split()) == 8


@pytest.mark.parametrize("stream", [True, False])
def test_a_server_that_tells_no_usage_leaves_it_unknown(meter: Meter, stream: bool) -> None:
    meter.fake.behaviour.usage = "never"
    assert meter.chat(stream=stream).status_code == 200
    call = meter.call()
    assert call.input_tokens is call.output_tokens is call.uncached_tokens is None
    assert (call.own_input_tokens, call.own_output_tokens) == (2, 8)


def test_stream_and_whole_reply_have_one_hash(meter: Meter) -> None:
    meter.chat()
    meter.chat(stream=True)
    whole, streamed = meter.calls()
    assert whole.response_hash == streamed.response_hash is not None
    assert whole.request_hash != streamed.request_hash


def test_usage_on_the_last_chunk_is_learned_and_nothing_is_lost(meter: Meter) -> None:
    meter.fake.behaviour.usage_in_last_chunk = True
    text = meter.chat(stream=True).text
    assert tokens(meter.calls()) == meter.fake.bill.tokens()
    assert '"finish_reason": "stop"' in text and text.endswith("data: [DONE]\n\n")


def leave_early(meter: Meter) -> None:
    """Read two chunks of a long, slow stream and hang up."""
    meter.fake.behaviour.token_s = 0.01
    meter.fake.behaviour.on_chat = lambda body: "word " * 120
    with httpx2.stream(
        "POST", f"{meter.url}/chat/completions", json=chat_body(stream=True), timeout=20
    ) as reply:
        chunks = reply.iter_raw()
        for _ in range(3):
            next(chunks)
    assert meter.fake.bill.wait(lambda served: served[0].done)


def test_an_abandoned_stream_stops_the_upstream_and_stays_unknown(meter: Meter) -> None:
    leave_early(meter)
    call, [served] = meter.call(), meter.fake.bill.of()
    assert served.disconnected and 0 < served.output_tokens < 60
    assert call.outcome == "abandoned"
    assert call.input_tokens is call.output_tokens is None
    assert 0 < (call.own_output_tokens or 0) <= served.output_tokens
    assert meter.gateway.transport_failures(meter.scope) == 0


def test_an_abandoned_stream_is_exact_where_the_engine_reports(
    make_meter: Callable[..., Meter],
) -> None:
    meter = make_meter()
    meter.gateway.stop()
    meter = make_meter(
        upstream=Upstream(meter.fake.url, report_url=f"{meter.fake.root}/agentmem/requests")
    )
    meter.fake.behaviour.reports = True
    leave_early(meter)
    call, [served] = meter.call(), meter.fake.bill.of()
    assert served.disconnected and call.outcome == "abandoned"
    assert tokens([call]) == (served.input_tokens, served.output_tokens)
    assert call.engine is not None and call.engine["request_id"] == call.call_id


def test_an_abandoned_stream_is_exact_where_it_is_drained(
    make_meter: Callable[..., Meter],
) -> None:
    meter = make_meter(on_abandon="drain")
    leave_early(meter)
    call, [served] = meter.call(), meter.fake.bill.of()
    assert not served.disconnected and served.output_tokens == 120
    assert tokens([call]) == (served.input_tokens, 120)
    assert call.outcome == "abandoned"
    assert call.latency_s < 120 * 0.01


def test_a_client_that_leaves_after_the_finish_reason_still_has_its_usage(meter: Meter) -> None:
    meter.fake.behaviour.usage_pause_s = 0.2
    with httpx2.stream(
        "POST", f"{meter.url}/chat/completions", json=chat_body(stream=True), timeout=20
    ) as reply:
        for line in reply.iter_lines():
            if '"finish_reason": "stop"' in line:
                break
    call = meter.call()
    assert call.outcome == "ok"
    assert tokens([call]) == meter.fake.bill.tokens()


def test_a_client_that_gives_up_waiting_for_a_whole_reply(meter: Meter) -> None:
    meter.fake.behaviour.first_token_s = 30.0
    with pytest.raises(httpx2.ReadTimeout):
        httpx2.post(f"{meter.url}/chat/completions", json=chat_body(), timeout=0.2)
    assert meter.fake.bill.wait(lambda served: served[0].done)
    call, [served] = meter.call(), meter.fake.bill.of()
    assert served.disconnected and served.output_tokens == 0
    assert (call.outcome, call.status, call.output_tokens) == ("abandoned", None, None)


def test_four_threads(meter: Meter) -> None:
    meter.gateway.set_phase(meter.scope, "construction", "measured", "u1")
    meter.fake.behaviour.token_s = 0.001
    talker = client(meter)

    def ask(number: int) -> None:
        text = f"question {number % 5} " * (number % 7 + 1)
        talker.chat.completions.create(
            model="fake-chat", messages=[{"role": "user", "content": text}]
        )

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ask, range(24)))
    calls = meter.calls()
    assert len(calls) == len(meter.fake.bill.of()) == 24
    assert tokens(calls) == meter.fake.bill.tokens()
    assert len({c.logical_id for c in calls}) == 24
    by_id = {r.request_id: r for r in meter.fake.bill.of()}
    for call in calls:
        assert call.input_tokens == by_id[call.call_id].input_tokens


def test_a_background_worker_that_outlives_its_phase(meter: Meter) -> None:
    jobs: queue.Queue[str | None] = queue.Queue()

    def work() -> None:
        talker = client(meter)
        while (text := jobs.get()) is not None:
            talker.chat.completions.create(
                model="fake-chat", messages=[{"role": "user", "content": text}]
            )

    worker = threading.Thread(target=work)
    worker.start()
    meter.fake.behaviour.first_token_s = 0.15
    meter.gateway.set_phase(meter.scope, "construction", "measured", "u1")
    jobs.put("arrives in the phase, ends after the verb")
    assert meter.fake.bill.wait(lambda served: len(served) == 1)
    assert meter.gateway.in_flight(meter.scope) == 1
    assert meter.gateway.wait_quiet(meter.scope, 0.05, 0.01) is None
    waited = meter.gateway.wait_quiet(meter.scope, 0.05, 10.0, close_phase=True)
    assert waited is not None and waited > 0.05
    jobs.put("arrives after the phase was closed")
    assert meter.fake.bill.wait(lambda served: len(served) == 2)
    meter.gateway.set_phase(meter.scope, "retrieval", "measured", "q1")
    jobs.put(None)
    worker.join()
    first, second = meter.calls()
    assert (first.phase, first.bucket, first.unit) == ("construction", "measured", "u1")
    assert (second.phase, second.bucket, second.unit) == (None, "unattributed", None)
    assert tokens([first, second]) == meter.fake.bill.tokens()


def test_a_call_keeps_the_phase_it_arrived_in(meter: Meter) -> None:
    meter.fake.behaviour.first_token_s = 0.1
    meter.gateway.set_phase(meter.scope, "construction", "measured", "u1")
    asking = threading.Thread(target=meter.chat)
    asking.start()
    assert meter.fake.bill.wait(lambda served: len(served) == 1)
    meter.gateway.set_phase(meter.scope, "generation", "measured", "q1")
    asking.join()
    assert meter.call().phase == "construction"


def test_raw_http(meter: Meter) -> None:
    parts = urlsplit(meter.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    for _ in range(2):  # one connection, kept alive
        body = json.dumps(chat_body("raw words")).encode()
        connection.request("POST", f"{parts.path}/chat/completions", body)
        assert json.loads(connection.getresponse().read())["choices"]
    connection.close()
    calls = meter.calls()
    assert tokens(calls) == meter.fake.bill.tokens()
    assert len({c.logical_id for c in calls}) == 2, "an application's own repeat is a new call"
    assert all(c.retry_count is None for c in calls)


@pytest.mark.parametrize("fault", [Fault("status", status=500), Fault("reset")])
def test_two_failures_then_success(meter: Meter, fault: Fault) -> None:
    meter.fake.fail(fault, times=2)
    client(meter).chat.completions.create(model="fake-chat", messages=MESSAGES)
    calls = meter.calls()
    assert len(calls) == len(meter.fake.bill.of()) == 3
    assert len({c.logical_id for c in calls}) == 1
    assert [c.attempt for c in calls] == [c.retry_count for c in calls] == [0, 1, 2]
    failed = "http_error" if fault.kind == "status" else "transport_error"
    assert [c.outcome for c in calls] == [failed, failed, "ok"]
    assert [c.input_tokens for c in calls] == [None, None, 12]
    assert len({c.seed for c in calls}) == 1
    assert meter.fake.bill.tokens() == (12, 8)
    assert meter.gateway.transport_failures(meter.scope) == (2 if fault.kind == "reset" else 0)


def test_a_client_time_out_and_its_retry_are_one_logical_call(meter: Meter) -> None:
    meter.fake.fail(Fault("hang", hang_s=30.0))
    talker = client(meter, timeout=0.3)
    talker.chat.completions.create(model="fake-chat", messages=MESSAGES)
    assert eventually(lambda: len(meter.calls()) == 2)
    calls = sorted(meter.calls(), key=lambda c: c.start_s)
    assert [c.outcome for c in calls] == ["abandoned", "ok"]
    assert len({c.logical_id for c in calls}) == 1


@pytest.mark.parametrize("coding", ["float", "base64"])
def test_embedding_batches(meter: Meter, coding: str) -> None:
    meter.gateway.set_phase(meter.scope, "construction", "measured", "u1")
    texts = [f"note {n} about the garden" for n in range(40)]
    reply = client(meter).embeddings.create(
        model="fake-embed",
        input=texts,
        encoding_format=coding,  # type: ignore[arg-type]
    )
    call = meter.call()
    assert len(reply.data) == 40 and len(reply.data[0].embedding or "") >= 32
    assert (call.endpoint, call.sequences, call.kind) == ("embedding", 40, "embed-write")
    assert tokens([call]) == meter.fake.bill.tokens() == (200, 0)
    assert call.own_input_tokens == 200
    assert call.response_hash is not None


def test_two_systems_at_once(meter: Meter) -> None:
    meter.open("other.h1", system="other")
    meter.gateway.set_phase("other.h1", "generation", "measured", "q")
    meter.gateway.set_phase(meter.scope, "construction", "measured", "u")

    def ask(scope: str, words: int) -> None:
        for _ in range(8):
            body = chat_body("word " * words)
            httpx2.post(f"{meter.urls[scope]}/chat/completions", json=body, timeout=20)

    threads = [
        threading.Thread(target=ask, args=(scope, words))
        for scope, words in ((meter.scope, 3), ("other.h1", 11))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    here, there = meter.calls(), meter.calls("other.h1")
    assert tokens(here) == (8 * 7, 8 * 8) and tokens(there) == (8 * 15, 8 * 8)
    assert {c.phase for c in here} == {"construction"}
    assert {c.phase for c in there} == {"generation"}
    sessions = {r.headers["x-session-id"] for r in meter.fake.bill.of()}
    assert sessions == {"sys.r0.h1.background", "other.r0.h1.interactive"}


def test_a_late_arrival_after_close_is_forwarded_and_unattributed(meter: Meter) -> None:
    meter.gateway.set_phase(meter.scope, "construction", "measured", "u1")
    meter.gateway.close_scope(meter.scope)
    meter.chat().raise_for_status()
    meter.gateway.set_phase(meter.scope, "retrieval", "measured", "q1")
    meter.chat().raise_for_status()
    calls = meter.calls()
    assert [(c.phase, c.bucket, c.unit) for c in calls] == [(None, "unattributed", None)] * 2
    assert tokens(calls) == meter.fake.bill.tokens()
