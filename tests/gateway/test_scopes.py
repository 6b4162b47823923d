"""Phases, operations, quiet, reattribution: what a call is booked under."""

from __future__ import annotations

import threading
import time

import httpx2
import pytest

from agentmem.records import Fingerprint
from tests.gateway.conftest import Meter, chat_body


def test_outside_any_phase_is_unattributed(meter: Meter) -> None:
    meter.chat()
    meter.gateway.set_phase(meter.scope, "construction", "measured", "u1")
    meter.chat()
    meter.gateway.set_phase(meter.scope, None, "setup")
    meter.chat()
    meter.gateway.set_phase(meter.scope, None)
    meter.chat()
    booked = [(c.phase, c.bucket, c.unit) for c in meter.calls()]
    assert booked == [
        (None, "unattributed", None),
        ("construction", "measured", "u1"),
        (None, "setup", None),
        (None, "unattributed", None),
    ]


def test_operations_overlap_under_their_own_urls(meter: Meter) -> None:
    gateway = meter.gateway
    gateway.set_phase(meter.scope, "construction", "measured", "u1", operation="write-1")
    gateway.set_phase(meter.scope, "retrieval", "measured", "q1", operation="ask 2")
    for operation in ("write-1", "ask 2", "never-set", None):
        url = gateway.url_of(meter.scope, operation)
        httpx2.post(f"{url}/chat/completions", json=chat_body()).raise_for_status()
    booked = [(c.operation, c.phase, c.unit, c.traffic_class) for c in meter.calls()]
    assert booked == [
        ("write-1", "construction", "u1", "background"),
        ("ask 2", "retrieval", "q1", "interactive"),
        ("never-set", None, None, "interactive"),
        (None, None, None, "interactive"),
    ]


def test_an_operation_is_quiet_by_itself(meter: Meter) -> None:
    meter.fake.behaviour.first_token_s = 0.4
    slow = meter.gateway.url_of(meter.scope, "slow")
    asking = threading.Thread(
        target=httpx2.post, args=(f"{slow}/chat/completions",), kwargs={"json": chat_body()}
    )
    asking.start()
    assert meter.fake.bill.wait(lambda served: len(served) == 1)
    assert meter.gateway.in_flight(meter.scope, "slow") == 1
    assert meter.gateway.in_flight(meter.scope, "other") == 0
    assert meter.gateway.wait_quiet(meter.scope, 0.0, 0.1, operation="other") is not None
    assert meter.gateway.wait_quiet(meter.scope, 0.0, 0.1) is None
    assert meter.gateway.wait_quiet(meter.scope, 0.0, 10, operation="slow") is not None
    asking.join()


def test_quiet_means_quiet_for_the_whole_interval(meter: Meter) -> None:
    asked: list[float] = []
    meter.fake.on_request = lambda peer: asked.append(time.monotonic())

    def ask() -> None:
        with httpx2.Client() as client:
            for _ in range(6):
                client.post(f"{meter.url}/chat/completions", json=chat_body())
                time.sleep(0.05)

    asking = threading.Thread(target=ask)
    asking.start()
    assert meter.fake.bill.wait(lambda served: len(served) == 1)
    waited = meter.gateway.wait_quiet(meter.scope, 0.3, 10.0)
    returned = time.monotonic()
    assert waited is not None and waited >= 0.3
    assert returned - max(at for at in asked if at < returned) >= 0.3
    asking.join()


def test_rows_are_written_before_quiet(meter: Meter) -> None:
    for count in range(1, 6):
        meter.chat()
        assert meter.gateway.wait_quiet(meter.scope, 0.0, 5.0) is not None
        assert len(meter.gateway.calls_of(meter.scope)) == count


def test_a_scope_may_be_opened_again_once_closed(meter: Meter) -> None:
    with pytest.raises(ValueError, match="already open"):
        meter.open(meter.scope)
    meter.gateway.close_scope(meter.scope)
    assert meter.open(meter.scope, epoch=3)
    meter.gateway.set_phase(meter.scope, "construction", unit="u")
    meter.chat()
    call = meter.call()
    assert (call.epoch, call.bucket) == (3, "measured")


def test_scope_names_may_hold_anything(meter: Meter) -> None:
    name = "run 1/sys ü/h?#%"
    meter.open(name)
    reply = httpx2.post(f"{meter.urls[name]}/chat/completions", json=chat_body())
    assert reply.status_code == 200
    assert [c.scope for c in meter.calls(name)] == [name]


def test_calls_can_be_reattributed_later(meter: Meter) -> None:
    meter.gateway.set_phase(meter.scope, "retrieval", "measured", "q1")
    ids = [meter.chat().headers["x-agentmem-call"] for _ in range(3)]
    meter.quiet()
    meter.gateway.reattribute(ids[2:], "generation", "generate", "answer", "final text")
    calls = meter.gateway.calls_of(meter.scope)
    assert [c.call_id for c in calls] == ids
    assert [c.phase for c in calls] == ["retrieval", "retrieval", "generation"]
    assert (calls[2].stage, calls[2].kind) == ("generate", "answer")
    [row] = meter.reattributions()
    assert (row.call_id, row.phase, row.reason) == (ids[2], "generation", "final text")
    with pytest.raises(KeyError):
        meter.gateway.reattribute(["nobody"], "generation")


def test_calls_since(meter: Meter) -> None:
    meter.chat()
    first = meter.call()
    meter.chat()
    meter.quiet()
    later = meter.gateway.calls_of(meter.scope, since_s=first.start_s + 1e-9)
    assert len(later) == 1 and later[0].start_s > first.start_s


def test_kinds_by_fingerprint_and_by_phase(meter: Meter) -> None:
    marks = (
        Fingerprint("extract", "construct", ("Extract facts", "JSON")),
        Fingerprint("rerank", "retrieve", ("rank",), endpoint="chat", phase="retrieval"),
    )
    meter.open("marked", fingerprints=marks)
    chat, embeddings = "chat/completions", "embeddings"
    plan = [
        ("construction", chat, "Extract facts as JSON", ("construct", "extract")),
        ("construction", chat, "Extract facts", ("construct", "unknown")),
        ("construction", embeddings, "text", ("store", "embed-write")),
        ("retrieval", embeddings, "text", ("retrieve", "embed-query")),
        ("retrieval", chat, "rank these", ("retrieve", "rerank")),
        ("generation", chat, "rank these", ("generate", "answer")),
        (None, chat, "stray", (None, "unknown")),
    ]
    for phase, tail, text, _ in plan:
        meter.gateway.set_phase("marked", phase)  # type: ignore[arg-type]
        body = chat_body(text) if tail == chat else {"model": "e", "input": text}
        httpx2.post(f"{meter.urls['marked']}/{tail}", json=body).raise_for_status()
    assert [(c.stage, c.kind) for c in meter.calls("marked")] == [want for *_, want in plan]


def test_the_judge_is_a_kind_of_its_own(meter: Meter) -> None:
    meter.gateway.set_phase(meter.scope, None, "judge", "q1")
    meter.chat()
    assert (meter.call().kind, meter.call().bucket) == ("judge", "judge")
