"""One HTTP attempt while it runs, and the row it becomes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentmem.gateway.asked import Asked
from agentmem.gateway.attempts import Logical
from agentmem.gateway.kinds import classify
from agentmem.gateway.policy import Outgoing
from agentmem.gateway.replay_mark import forced_mark, marked
from agentmem.gateway.replies import Reply
from agentmem.gateway.scopes import Arrival
from agentmem.gateway.streams import Progress
from agentmem.gateway.usage import Usage
from agentmem.records import Call, CallBegin, Outcome

if TYPE_CHECKING:
    from agentmem.gateway.record_format import Entry

_QUOTE_CHARS = 24
_ERROR_CHARS = 300


@dataclass(slots=True)
class Exchange:
    """Everything known about an attempt. Written by the event loop, read by the recorder."""

    call_id: str
    arrival: Arrival
    asked: Asked
    out: Outgoing
    logical: Logical
    attempt: int
    retry_count: int | None
    start_s: float
    end_s: float | None = None
    upstream_s: float = 0.0
    """Time spent waiting for the upstream."""
    first_token_s: float | None = None
    status: int | None = None
    outcome: Outcome = "open"
    error: str | None = None
    reply: Reply = field(default_factory=Reply)
    streamed: bool = False
    """The upstream answered with an event stream."""
    progress: Progress | None = None
    """Of a stream; its events are read when the row is made."""
    complete: bool = False
    """The client has been given the whole answer."""
    response_bytes: int = 0
    kept: list[bytes] = field(default_factory=list)
    """Body of a whole reply until it is read; of a stream only where text is kept."""
    target: str = ""
    """Method and path below `/v1/`, with the query."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Of the upstream's reply."""
    length: int | None = None
    """The reply's announced length."""
    broken: bool = False
    """The upstream's connection broke within the reply."""
    report: Any = None
    """Usage told after the client had left."""
    missed: str | None = None
    """Why a replay had no reply for this request."""
    replayed: Entry | None = None
    """The recorded reply that was served."""
    forced: bool = False
    """An engine was made to produce the recorded reply."""
    produced: Reply | None = None
    """What it said of that work; the usage is its own."""


@dataclass(frozen=True, slots=True)
class Counter:
    """Our own tokenizer (R4)."""

    count: Callable[[str], int] | None
    name: str | None

    def total(self, texts: list[str]) -> int | None:
        return None if self.count is None else sum(self.count(text) for text in texts)


def begin_row(ex: Exchange) -> CallBegin:
    scope, slot = ex.arrival.state.scope, ex.arrival.slot
    return CallBegin(
        call_id=ex.call_id,
        logical_id=ex.logical.logical_id,
        scope=scope.scope,
        system=scope.system,
        history=scope.history,
        operation=ex.arrival.operation,
        unit=slot.unit,
        phase=slot.phase,
        bucket=slot.bucket,
        endpoint=ex.asked.endpoint,
        start_s=ex.start_s,
        epoch=ex.arrival.epoch,
        repeat=scope.repeat,
    )


def read_reply(ex: Exchange) -> None:
    """Take usage, content and error out of what came back."""
    if ex.progress is not None:
        broken = False
        for event in ex.progress.events:
            read = event.json()
            broken = broken or (read is None and event.data.startswith(b"{"))
            ex.reply.feed(read or {})
        if broken and ex.outcome == "ok":
            ex.outcome, ex.error = "http_error", "an event of the stream is no valid JSON"
        if ex.outcome == "truncated" and ex.reply.error is not None:
            ex.error = ": ".join(["error in the stream", *_named(ex.reply.error)])
        return
    try:
        message = json.loads(b"".join(ex.kept))
    except (ValueError, RecursionError):
        if ex.outcome == "ok" and ex.asked.endpoint != "other":
            ex.outcome, ex.error = "http_error", "the reply is no valid JSON"
        return
    if isinstance(message, dict):
        ex.reply.feed(message)


def call_row(ex: Exchange, counter: Counter) -> Call:
    """The finished attempt as a row; reads the reply and counts tokens, off the reply path."""
    read_reply(ex)
    begin, asked, out = begin_row(ex), ex.asked, ex.out
    usage = _usage(ex)
    texts = asked.texts()
    stage, kind = classify(
        ex.arrival.state.scope.fingerprints, begin.endpoint, begin.phase, begin.bucket, texts
    )
    own_input = counter.total(texts)
    end_s = ex.start_s if ex.end_s is None else ex.end_s
    latency_s = end_s - ex.start_s
    return Call(
        **dataclasses.asdict(begin),
        attempt=ex.attempt,
        stage=stage,
        kind=kind,
        model=asked.model,
        stream=asked.stream,
        latency_s=latency_s,
        overhead_s=max(0.0, latency_s - ex.upstream_s),
        ttft_s=_ttft_s(ex),
        status=ex.status,
        outcome=ex.outcome,
        error=ex.error or _error_of(ex, texts),
        input_tokens=usage.input,
        uncached_tokens=usage.uncached,
        cache_read_tokens=usage.cache_read,
        cache_write_tokens=usage.cache_write,
        output_tokens=usage.output,
        reasoning_tokens=usage.reasoning,
        own_input_tokens=None if own_input is None else own_input + asked.token_ids(),
        own_output_tokens=_own_output(ex, counter),
        tokenizer=counter.name,
        sequences=asked.sequences,
        request_bytes=len(asked.raw),
        response_bytes=ex.response_bytes,
        request_hash=asked.request_hash,
        response_hash=ex.reply.digest(),
        finish_reason=ex.reply.finish_reason,
        max_tokens=asked.max_tokens,
        constrained=out.constrained,
        session_id=out.session_id,
        sent_session_id=asked.sent_session_id,
        traffic_class=out.traffic,
        sent_temperature=asked.temperature,
        seed=out.seed,
        retry_count=ex.retry_count,
        engine=_engine(ex, usage),
    )


def _usage(ex: Exchange) -> Usage:
    """Of the engine that did the work: a recorded reply's own usage is what it cost then."""
    if ex.forced:
        return ex.produced.usage if ex.produced else Usage()
    return ex.reply.usage


def _engine(ex: Exchange, usage: Usage) -> Mapping[str, Any] | None:
    if ex.replayed is None:
        return usage.engine
    if ex.forced:
        return forced_mark(usage.engine, ex.reply.usage, ex.replayed.recorded_s)
    return marked(usage.engine, ex.replayed.recorded_s)


def _own_output(ex: Exchange, counter: Counter) -> int | None:
    """What was delivered of a text; unknown where no text of the model's can be told apart."""
    readable = ex.streamed or ex.outcome == "ok"
    if ex.status != 200 or ex.asked.endpoint == "other" or not readable:
        return None
    return counter.total(ex.reply.texts())


def _ttft_s(ex: Exchange) -> float | None:
    if ex.first_token_s is not None:
        return ex.first_token_s - ex.start_s
    if ex.streamed or ex.outcome != "ok" or (ex.replayed and not ex.forced):
        return None
    told = (_usage(ex).engine or {}).get("ttft_s")
    return float(told) if isinstance(told, int | float) else None


def _error_of(ex: Exchange, texts: list[str]) -> str | None:
    """The upstream's error in one line, without what it quotes of the request."""
    if ex.outcome != "http_error":
        return None
    given = ex.reply.error or {}
    named = _named(given)
    message = " ".join(str(given.get("message") or "").split())[:_ERROR_CHARS]
    if message and not _quotes(message, texts):
        named.append(message)
    return ": ".join([f"HTTP {ex.status}", *named])


def _named(error: Mapping[str, Any]) -> list[str]:
    return [str(error[name]) for name in ("type", "code") if error.get(name) is not None]


def _quotes(message: str, texts: list[str]) -> bool:
    starts = range(max(1, len(message) - _QUOTE_CHARS + 1))
    pieces = [message[i : i + _QUOTE_CHARS] for i in starts]
    flat = " ".join(" ".join(texts).split())
    return any(piece in flat for piece in pieces)
