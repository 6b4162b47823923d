"""What goes through unchanged, what fails clearly, and what the client gets to see."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from agentmem.errors import UsageError
from agentmem.gateway import Gateway, GatewayOptions, Upstream
from tests.fake import Fault
from tests.gateway.conftest import Meter, chat_body

TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def test_a_scope_never_handed_out_is_404_and_on_nobodys_bill(meter: Meter) -> None:
    reply = httpx2.post(f"{meter.gateway.base}/s/ghost/v1/chat/completions", json=chat_body())
    assert reply.status_code == 404
    assert "ghost" in reply.json()["error"]["message"]
    assert reply.json()["error"]["code"] == "unknown_scope"
    assert meter.fake.bill.of() == [] and meter.rows == []
    with pytest.raises(openai.NotFoundError, match="unknown scope 'ghost'"):
        openai.OpenAI(base_url=f"{meter.gateway.base}/s/ghost/v1", api_key="x").models.list()


@pytest.mark.parametrize("path", ["/", "/v1/chat/completions", "/s/sys.h1", "/s/sys.h1/a/b/v1/x"])
def test_any_other_path_is_404(meter: Meter, path: str) -> None:
    reply = httpx2.post(f"{meter.gateway.base}{path}", json=chat_body())
    assert reply.status_code == 404 and "/s/<scope>/v1/" in reply.json()["error"]["message"]


def test_unknown_fields_pass_both_ways(meter: Meter) -> None:
    odd: dict[str, Any] = {
        "store": False,
        "top_k": 7,
        "metadata": {"a": [1, 2.5, None, "ü"]},
        "top_p": 0.1,
    }
    reply = meter.chat(**odd)
    sent = meter.fake.bill.of()[0].body
    assert {k: sent[k] for k in odd} == odd
    direct = httpx2.post(f"{meter.fake.url}/chat/completions", json=chat_body(**odd)).json()
    passed = reply.json()
    assert {k: v for k, v in passed.items() if k != "id"} == {
        k: v for k, v in direct.items() if k != "id"
    }


def test_headers_and_query_pass_and_the_key_is_ours(
    make_meter: Callable[..., Meter], meter: Meter
) -> None:
    keyed = make_meter(upstream=Upstream(meter.fake.url, api_key="real"))
    more = {"traceparent": "00-1-2-01", "baggage": "a=b", "Authorization": "Bearer placeholder"}
    keyed.post("chat/completions?api-version=3", chat_body(), headers=more)
    meter.post("chat/completions", chat_body(), headers=more)
    with_key, without = meter.fake.bill.of()
    assert with_key.headers["traceparent"] == "00-1-2-01"
    assert with_key.headers["baggage"] == "a=b"
    assert with_key.headers["authorization"] == "Bearer real"
    assert with_key.path.endswith("?api-version=3")
    assert with_key.headers["accept-encoding"] == "identity"
    assert "authorization" not in without.headers


def test_tools_pass_and_their_calls_come_back(meter: Meter) -> None:
    client = openai.OpenAI(base_url=meter.url, api_key="x")
    reply = client.chat.completions.create(  # type: ignore[call-overload]
        model="fake-chat",
        messages=[{"role": "user", "content": "look"}],
        tools=[TOOL],
        tool_choice="required",
    )
    [wanted] = reply.choices[0].message.tool_calls
    assert wanted.function.name == "look_up"
    served = meter.fake.bill.of()[0]
    assert served.body["tools"] == [TOOL] and served.body["tool_choice"] == "required"
    call = meter.call()
    assert (call.constrained, call.finish_reason) == ("tools", "tool_calls")
    assert call.own_output_tokens == call.output_tokens == served.output_tokens > 0


def test_events_are_passed_on_as_they_arrive(meter: Meter) -> None:
    meter.fake.behaviour.token_s = 0.15
    meter.fake.behaviour.on_chat = lambda body: "one two three four"
    arrived: list[float] = []
    with httpx2.stream(
        "POST", f"{meter.url}/chat/completions", json=chat_body(stream=True), timeout=20
    ) as reply:
        arrived += [time.monotonic() for line in reply.iter_lines() if "content" in line]
    assert len(arrived) == 5
    assert arrived[-1] - arrived[0] > 0.3, "events came in one piece"
    call = meter.call()
    assert call.ttft_s is not None and call.ttft_s < call.latency_s - 0.3
    assert call.overhead_s is not None and call.overhead_s < 0.2


def test_the_role_chunk_is_no_first_token(meter: Meter) -> None:
    meter.fake.behaviour.first_token_s = 0.2
    meter.chat(stream=True)
    assert (meter.call().ttft_s or 0) > 0.19


def test_a_whole_reply_has_the_engines_own_time_to_first_token(meter: Meter) -> None:
    meter.fake.behaviour.cache = "agentmem"
    meter.chat()
    call = meter.call()
    assert call.ttft_s == 0.001
    assert call.engine is not None and call.engine["version"] == 1


def test_no_token_is_no_time_to_first_token(meter: Meter) -> None:
    meter.fake.behaviour.cache = "agentmem"
    meter.fake.behaviour.on_chat = lambda body: ""
    meter.chat(stream=True)
    call = meter.call()
    assert call.outcome == "ok" and call.engine is not None
    assert (call.ttft_s, call.output_tokens) == (None, 0)


def test_the_responses_api(meter: Meter) -> None:
    client = openai.OpenAI(base_url=meter.url, api_key="x")
    whole = client.responses.create(model="fake-chat", input="say something")
    events = list(client.responses.create(model="fake-chat", input="say something", stream=True))
    assert events[-1].type == "response.completed"
    calls = meter.calls()
    assert [c.endpoint for c in calls] == ["responses"] * 2
    assert sum(c.input_tokens or 0 for c in calls) == meter.fake.bill.tokens()[0] == 4
    assert sum(c.output_tokens or 0 for c in calls) == meter.fake.bill.tokens()[1] == 16
    assert calls[0].response_hash == calls[1].response_hash
    assert calls[0].own_output_tokens == len(whole.output_text.split()) == 8
    assert "seed" not in meter.fake.bill.of()[0].body


def test_completions_with_several_prompts(meter: Meter) -> None:
    meter.post("completions", {"model": "m", "prompt": ["a b", "c d e"], "stream": True})
    call = meter.call()
    assert (call.endpoint, call.sequences, call.own_input_tokens) == ("completion", 2, 5)
    assert (call.input_tokens, call.output_tokens) == meter.fake.bill.tokens() == (5, 8)


def test_models_are_forwarded_and_booked_as_other(meter: Meter) -> None:
    client = openai.OpenAI(base_url=meter.url, api_key="x")
    assert {m.id for m in client.models.list()} == {"fake-chat", "fake-embed"}
    call = meter.call()
    assert (call.endpoint, call.kind, call.outcome) == ("other", "other", "ok")


def test_embeddings_may_go_elsewhere(make_meter: Callable[..., Meter], meter: Meter) -> None:
    dead = f"http://127.0.0.1:{free_port()}/v1"
    split = make_meter(upstream=Upstream(dead, meter.fake.url, "k1", "k2"))
    assert split.post("embeddings", {"model": "e", "input": "text"}).status_code == 200
    assert split.chat().status_code == 502
    assert meter.fake.bill.of("embedding")[0].headers["authorization"] == "Bearer k2"


def test_a_dead_upstream_is_a_clear_502(make_meter: Callable[..., Meter]) -> None:
    meter = make_meter(upstream=Upstream(f"http://127.0.0.1:{free_port()}/v1"))
    reply = meter.chat()
    assert reply.status_code == 502
    assert "no reply from the upstream" in reply.json()["error"]["message"]
    call = meter.call()
    assert (call.outcome, call.status, call.input_tokens) == ("transport_error", None, None)
    assert "Cannot connect" in (call.error or "")
    assert meter.gateway.transport_failures(meter.scope) == 1


def test_a_silent_upstream_is_a_clear_504(make_meter: Callable[..., Meter]) -> None:
    meter = make_meter(upstream_timeout_s=0.2)
    meter.fake.behaviour.first_token_s = 5.0
    assert meter.chat().status_code == 504
    assert meter.call().outcome == "transport_error"
    assert meter.gateway.transport_failures(meter.scope) == 1


@pytest.mark.parametrize("status", [400, 429, 500, 503])
def test_error_statuses_pass_through(meter: Meter, status: int) -> None:
    meter.fake.fail(Fault("status", status=status, message="slow down please"))
    reply = meter.chat()
    assert (reply.status_code, reply.json()["error"]["message"]) == (status, "slow down please")
    call = meter.call()
    assert (call.outcome, call.status, call.output_tokens) == ("http_error", status, None)
    assert "slow down please" in (call.error or "") and str(status) in (call.error or "")
    assert call.ttft_s is None
    assert meter.gateway.transport_failures(meter.scope) == 0


def test_a_prompt_past_the_window(meter: Meter) -> None:
    meter.fake.behaviour.max_model_len = 16
    assert meter.chat("word " * 30).status_code == 400
    call = meter.call()
    assert call.outcome == "http_error" and "context_length_exceeded" in (call.error or "")


@pytest.mark.parametrize("stream", [True, False])
def test_a_reply_that_breaks_off_breaks_off_for_the_client_too(meter: Meter, stream: bool) -> None:
    meter.fake.fail(Fault("truncate", after_tokens=3))
    with pytest.raises(httpx2.RemoteProtocolError):
        meter.chat(stream=stream)
    call = meter.call()
    assert (call.outcome, call.status, call.output_tokens) == ("truncated", 200, None)
    assert call.own_output_tokens == (3 if stream else None)
    assert meter.gateway.transport_failures(meter.scope) == 1


def test_a_stream_that_ends_without_an_end(meter: Meter) -> None:
    meter.fake.fail(Fault("silent_end", after_tokens=3))
    with pytest.raises(httpx2.RemoteProtocolError):
        meter.chat(stream=True)
    assert meter.call().outcome == "truncated"
    assert meter.gateway.transport_failures(meter.scope) == 1


def test_a_malformed_reply_is_passed_on_and_called_so(meter: Meter) -> None:
    meter.fake.fail(Fault("malformed"))
    reply = meter.chat()
    with pytest.raises(ValueError):
        reply.json()
    call = meter.call()
    assert (call.outcome, call.status) == ("http_error", 200)
    assert call.error == "the reply is no valid JSON" and call.input_tokens is None


def test_a_malformed_request_is_for_the_upstream_to_refuse(meter: Meter) -> None:
    reply = httpx2.post(f"{meter.url}/chat/completions", content=b'{"model": "m", ')
    assert reply.status_code == 400
    assert meter.fake.bill.of()[0].raw == b'{"model": "m", '
    assert meter.call().outcome == "http_error"


def test_large_bodies(meter: Meter) -> None:
    meter.fake.behaviour.max_model_len = 1 << 30
    assert meter.chat("word " * 100_000).status_code == 200
    assert meter.call().input_tokens == 100_004
    meter.fake.behaviour.dims = 2048
    reply = meter.post("embeddings", {"model": "e", "input": [f"t{n}" for n in range(64)]})
    assert len(reply.json()["data"]) == 64 and len(reply.content) > 1 << 20
    assert meter.calls()[1].response_bytes == len(reply.content)


def test_upstream_connections_are_kept_alive(meter: Meter) -> None:
    ports = set()
    meter.fake.on_request = lambda peer: ports.add(peer[1])
    with httpx2.Client() as client:
        for stream in (False, True, False, True):
            body = chat_body(stream=stream)
            client.post(f"{meter.url}/chat/completions", json=body).raise_for_status()
    assert len(ports) == 1


def test_calls_are_held_while_the_upstream_restarts(meter: Meter) -> None:
    meter.gateway.hold()
    with pytest.raises(httpx2.ReadTimeout):
        httpx2.post(f"{meter.url}/chat/completions", json=chat_body(), timeout=0.2)
    assert meter.fake.bill.of() == []
    meter.gateway.release()
    assert meter.chat().status_code == 200
    assert [c.outcome for c in meter.calls()] == ["abandoned", "ok"]


def test_health(meter: Meter) -> None:
    assert httpx2.get(f"{meter.gateway.base}/healthz").json()["status"] == "ok"


def test_a_taken_port_is_one_clear_line(meter: Meter) -> None:
    port = int(meter.gateway.base.rsplit(":", 1)[1])
    other = Gateway(Upstream(meter.fake.url), meter.rows.append, options=GatewayOptions(port=port))
    with pytest.raises(UsageError, match=rf"cannot listen on 127.0.0.1:{port}: another program"):
        other.start()
    other.stop()


SECRET = "the heron sleeps under the ninth lantern tonight"


def everything_booked(meter: Meter) -> str:
    return "\n".join(repr(row) for row in meter.rows)


def provoke(meter: Meter) -> None:
    """Send the secret in every way, errors that quote it included."""
    meter.fake.behaviour.on_chat = lambda body: SECRET
    meter.chat(SECRET)
    meter.chat(SECRET, stream=True)
    meter.post("embeddings", {"model": "e", "input": [SECRET]})
    meter.fake.fail(Fault("status", status=400, message=f"cannot parse {SECRET!r}"))
    meter.chat(SECRET)
    meter.quiet()


def test_without_capture_no_text_is_kept(
    make_meter: Callable[..., Meter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    meter = make_meter()
    provoke(meter)
    assert len(meter.calls()) == 4
    for piece in ("heron", "ninth lantern"):
        assert piece not in everything_booked(meter)
    assert list(tmp_path.rglob("*")) == []


def test_capture_keeps_both_bodies_by_call(
    make_meter: Callable[..., Meter], tmp_path: Path
) -> None:
    folder = tmp_path / "captures"
    meter = make_meter(capture_dir=folder)
    provoke(meter)
    calls = meter.calls()
    [path] = folder.iterdir()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["call_id"] for line in lines] == [c.call_id for c in calls]
    assert path.name == "sys.h1.jsonl"
    assert lines[0]["sent"]["messages"][0]["content"] == SECRET
    assert lines[0]["reply"]["choices"][0]["message"]["content"] == SECRET
    assert "temperature" in lines[0]["forwarded"] and "temperature" not in lines[0]["sent"]
    assert "heron" in lines[1]["reply"] and lines[1]["reply"].endswith("[DONE]\n\n")
    assert "heron" not in everything_booked(meter)
