"""The one place that changes requests: sampling, seed, session, traffic class, constraints."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from agentmem.gateway.asked import read_request
from agentmem.gateway.options import GatewayOptions
from agentmem.gateway.policy import call_seed, outgoing, session_id, spliced
from agentmem.records import Fingerprint, Scope
from tests.gateway.conftest import Meter, chat_body

SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
OBJECT = {"type": "json_object"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}, "strict": True}}
SCOPE = Scope("s", "sys", "h", "t")
LOOSE = {"type": "function", "function": {"name": "f", "parameters": {}}}


def test_fixed_sampling_is_ours_and_what_was_sent_is_recorded(meter: Meter) -> None:
    meter.chat(temperature=0.7, seed=5, top_p=0.1)
    call, [served] = meter.call(), meter.fake.bill.of()
    assert served.body["temperature"] == 0.0 and served.body["top_p"] == 0.1
    assert served.body["seed"] == call.seed != 5
    assert call.sent_temperature == 0.7


def test_native_sampling_is_the_systems_own(make_meter: Callable[..., Meter]) -> None:
    meter = make_meter(sampling="native")
    meter.chat(temperature=0.7, seed=5)
    meter.chat(temperature=0.7)
    meter.chat()
    first, second, third = (s.body for s in meter.fake.bill.of())
    assert (first["temperature"], first["seed"]) == (0.7, 5)
    assert second["temperature"] == 0.7 and isinstance(second["seed"], int)
    assert "temperature" not in third
    assert [c.seed for c in meter.calls()] == [5, second["seed"], third["seed"]]


def test_seeds_follow_body_and_occurrence(make_meter: Callable[..., Meter], meter: Meter) -> None:
    for text in ("a", "b", "a"):
        meter.chat(text)
    a, b, again = (c.seed for c in meter.calls())
    assert len({a, b, again}) == 3
    other = make_meter()
    for text in ("a", "a", "b"):
        other.chat(text)
    assert [c.seed for c in other.calls()] == [a, again, b]
    assert call_seed(GatewayOptions(seed=1), "h", 0) != call_seed(GatewayOptions(), "h", 0)
    assert call_seed(GatewayOptions(), "h", 0, repeat=1) != call_seed(GatewayOptions(), "h", 0)


def test_one_session_per_history_and_traffic_class(meter: Meter) -> None:
    meter.gateway.set_phase(meter.scope, "construction")
    meter.post("chat/completions", chat_body(), headers={"X-Session-ID": "mine"})
    meter.gateway.set_phase(meter.scope, "retrieval")
    meter.chat(session_id="body wins")
    meter.chat(vllm_xargs={"session_id": "last resort"})
    calls, bill = meter.calls(), meter.fake.bill.of()
    assert [c.session_id for c in calls] == [s.headers["x-session-id"] for s in bill]
    assert [c.session_id for c in calls] == [
        "sys.r0.h1.background",
        "sys.r0.h1.interactive",
        "sys.r0.h1.interactive",
    ]
    assert [c.sent_session_id for c in calls] == ["mine", "body wins", "last resort"]
    assert "session_id" not in bill[1].body, "it would win over the header"
    assert [s.headers["x-agentmem-traffic"] for s in bill] == [c.traffic_class for c in calls]
    assert {s.headers["x-cache-salt"] for s in bill} == {"sys.r0"}


def test_a_system_cannot_choose_its_cache_or_class(meter: Meter) -> None:
    meter.gateway.set_phase(meter.scope, "construction")
    meter.chat(cache_salt="another's", traffic_class="interactive")
    [served] = meter.fake.bill.of()
    assert not {"cache_salt", "traffic_class"} & set(served.body)
    assert meter.call().traffic_class == "background"


def test_repeats_and_runs_have_sessions_of_their_own() -> None:
    tenants = ["run1:mem", "run1:mem:r1", "run2:mem", "run1:other"]
    ids = {session_id(Scope("s", "mem", "h", tenant), "interactive") for tenant in tenants}
    assert len(ids) == 4


def test_traffic_by_phase_is_the_profiles(make_meter: Callable[..., Meter]) -> None:
    meter = make_meter(traffic={"construction": "interactive", "generation": "background"})
    for phase in ("construction", "retrieval", "generation"):
        meter.gateway.set_phase(meter.scope, phase)
        meter.chat(phase)
    wanted = ["interactive", "interactive", "background"]
    assert [c.traffic_class for c in meter.calls()] == wanted
    assert [s.headers["x-agentmem-traffic"] for s in meter.fake.bill.of()] == wanted


@pytest.mark.parametrize("raw", [b"{}", b'{"a": 1, "reuse": true} ', b'{ "a" : {} }\n'])
def test_ways_go_with_the_body_and_win(raw: bytes) -> None:
    left = json.loads(spliced(raw, {"reuse": False, "forced_text": "\u00e9"}))
    assert left == {**json.loads(raw), "reuse": False, "forced_text": "\u00e9"}
    assert spliced(raw, {}) == raw


def test_ways_are_no_part_of_the_request(make_meter: Callable[..., Meter]) -> None:
    meter = make_meter(ways={"reuse": False})
    meter.chat()
    meter.post("embeddings", {"model": "fake-embed", "input": "x"})
    [chat] = meter.fake.bill.of("chat")
    [embedding] = meter.fake.bill.of("embedding")
    assert chat.body["reuse"] is False and "reuse" not in embedding.body
    asked = read_request("chat", json.dumps(chat_body()).encode(), {})
    plain = outgoing(asked, SCOPE, None, 0, "c", GatewayOptions())
    assert outgoing(asked, SCOPE, None, 0, "c", GatewayOptions(ways={"reuse": False})).body == (
        plain.body
    )


def test_session_ids_are_bounded_and_visible() -> None:
    odd = session_id(Scope("s", "sys", "h ü\r\n/1", "t"), "background")
    assert odd.isascii() and odd.isprintable() and " " not in odd
    long = [session_id(Scope("s", "sys", "h" * 300 + end, "t"), "background") for end in "ab"]
    assert all(len(one) <= 256 for one in long) and long[0] != long[1]


def sent(
    body: dict[str, Any], constrain: Any, scope: Scope = SCOPE
) -> tuple[dict[str, Any], str | None]:
    """(body as it leaves, what is recorded as its constraint)."""
    asked = read_request("chat", json.dumps(chat_body(**body)).encode(), {})
    out = outgoing(asked, scope, None, 0, "c", GatewayOptions(constrain=constrain))
    assert out.headers["X-Agentmem-Constrain"] == constrain
    return json.loads(out.body), out.constrained


@pytest.mark.parametrize(
    ("body", "constrained"),
    [
        ({}, None),
        ({"response_format": OBJECT}, "json_object"),
        ({"response_format": SCHEMA}, "json_schema"),
        ({"response_format": {"type": "text"}}, None),
        ({"tools": [TOOL]}, "tools"),
        ({"tools": [TOOL], "tool_choice": "required", "response_format": OBJECT}, "tools"),
        ({"tools": [TOOL], "tool_choice": "none"}, None),
        ({"structured_outputs": {"json": {}}}, "json_schema"),
    ],
)
def test_by_default_what_the_system_declares_holds(
    body: dict[str, Any], constrained: str | None
) -> None:
    left, recorded = sent(body, "tools")
    assert recorded == constrained
    assert {k: left[k] for k in body} == body


def test_off_constrains_nothing() -> None:
    left, recorded = sent({"response_format": SCHEMA, "guided_json": {}}, "off")
    assert recorded is None and not {"response_format", "guided_json"} & set(left)
    left, recorded = sent({"tools": [TOOL], "tool_choice": "required"}, "off")
    assert recorded is None
    assert left["tools"] == [LOOSE] and left["tool_choice"] == "auto"
    left, _ = sent({"tools": [LOOSE], "tool_choice": "none"}, "off")
    assert left["tool_choice"] == "none"


def test_all_constrains_what_can_be() -> None:
    left, recorded = sent({"tools": [LOOSE]}, "all")
    assert recorded == "tools" and left["tools"] == [TOOL]
    messages = [{"role": "user", "content": "Answer with a JSON object."}]
    left, recorded = sent({"messages": messages}, "all")
    assert recorded == "json_object" and left["response_format"] == OBJECT
    messages = [{"role": "user", "content": "Answer with a JSON array."}]
    left, recorded = sent({"messages": messages}, "all")
    assert recorded is None and "response_format" not in left
    left, recorded = sent({"response_format": SCHEMA}, "all")
    assert recorded == "json_schema" and left["response_format"] == SCHEMA


def test_embeddings_leave_as_they_came(meter: Meter) -> None:
    raw = b'{ "input" : "spaced  oddly", "model":"e", "session_id": "x" }'
    meter.post_raw("embeddings", raw)
    [served] = meter.fake.bill.of()
    assert served.raw == raw
    call = meter.call()
    assert (call.seed, call.session_id, call.sent_session_id) == (None, None, "x")


def test_max_tokens_is_recorded_and_the_cap_shows(meter: Meter) -> None:
    meter.chat(max_tokens=3)
    call = meter.call()
    assert (call.max_tokens, call.output_tokens, call.finish_reason) == (3, 3, "length")


def test_all_holds_a_reply_to_its_adapters_schema() -> None:
    schema = '{"type":"object","required":["facts"]}'
    mark = Fingerprint("extract", "construct", ("Organizer",), "chat", schema=schema)
    scope = Scope("s", "sys", "h", "t", (mark,))
    known = [{"role": "system", "content": "You are an Organizer."}]
    named = {"name": "extract", "schema": {"type": "object", "required": ["facts"]}}
    wanted = {"type": "json_schema", "json_schema": named}
    for given in ({}, {"response_format": OBJECT}):
        left, recorded = sent({"messages": known, **given}, "all", scope)
        assert recorded == "json_schema" and left["response_format"] == wanted
    left, _ = sent({"messages": known, "response_format": SCHEMA}, "all", scope)
    assert left["response_format"] == SCHEMA, "the system's own schema is stricter and stays"
    left, recorded = sent({"messages": known, "response_format": OBJECT}, "tools", scope)
    assert recorded == "json_object" and left["response_format"] == OBJECT
    other = [{"role": "user", "content": "Hello."}]
    left, recorded = sent({"messages": other}, "all", scope)
    assert recorded is None and "response_format" not in left
