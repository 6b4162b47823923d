"""Rows as OpenTelemetry spans: an export of what was recorded, never the record itself.

A span is worked out from a finished row, so nothing has to be propagated while a run goes on, and
switching spans off or taking a share of them changes no figure. Ids are hashes of the row's own
names: the same journal gives the same spans. Names follow the GenAI semantic conventions, which
are still in development; memory operations use the conventions' names for them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from agentmem import records
from agentmem.errors import UsageError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

INSTALL = "pip install 'agentmem-profiler[otel]'"
Attribute = str | int | float | bool | tuple[str, ...]

_CALL_OPERATIONS: dict[records.Endpoint, str] = {
    "chat": "chat",
    "completion": "text_completion",
    "responses": "chat",
    "embedding": "embeddings",
}
_MEMORY_OPERATIONS: dict[records.Phase, str] = {
    "construction": "upsert_memory",
    "retrieval": "search_memory",
}


@dataclass(frozen=True, slots=True)
class Span:
    """One span, ready to be handed to an exporter. Ids are integers, times run seconds."""

    span_id: int
    parent_id: int | None
    name: str
    kind: Literal["client", "internal"]
    start_s: float
    end_s: float
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    error: str | None = None


def trace_id(run_id: str) -> int:
    """128 bits, the same for every span of a run."""
    return _hash(16, "run", run_id)


def spans(run_id: str, rows: Iterable[records.Row], share: float = 1.0) -> Iterator[Span]:
    """Spans of a whole journal: one per call and window, under one for the run.

    `share` keeps about that part of the calls, chosen by their ids; windows are all kept. A call's
    phase is the final one: reattributions are applied first.
    """
    rows = list(rows)
    final = {r.call_id: r for r in rows if isinstance(r, records.Reattribution)}
    ends = [0.0]
    for row in rows:
        if isinstance(row, records.Window):
            yield window_span(run_id, row)
            ends.append(row.end_s)
        elif isinstance(row, records.Call):
            ends.append(row.start_s + row.latency_s)
            if _hash(8, "share", row.call_id) < share * 2**64:
                yield call_span(run_id, _settled(row, final.get(row.call_id)))
    name = "agentmem run"
    yield Span(_root(run_id), None, name, "internal", 0.0, max(ends), {"agentmem.run.id": run_id})


def call_span(run_id: str, call: records.Call) -> Span:
    """A model call, as the client's side of it. What is unknown has no attribute."""
    operation = _CALL_OPERATIONS.get(call.endpoint, call.endpoint)
    failed = None if call.outcome == "ok" else (call.error or call.outcome)
    attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": call.model,
        "gen_ai.request.max_tokens": call.max_tokens,
        "gen_ai.request.stream": call.stream,
        "gen_ai.conversation.id": call.session_id,
        "gen_ai.usage.input_tokens": call.input_tokens,
        "gen_ai.usage.output_tokens": call.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": call.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": call.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": call.reasoning_tokens,
        "gen_ai.response.time_to_first_chunk": call.ttft_s if call.stream else None,
        "gen_ai.response.finish_reasons": call.finish_reason and (call.finish_reason,),
        "http.response.status_code": call.status,
        "error.type": _error_type(call),
        "agentmem.call.id": call.call_id,
        "agentmem.logical.id": call.logical_id,
        "agentmem.attempt": call.attempt,
        "agentmem.kind": call.kind,
        "agentmem.stage": call.stage,
        **_place(call),
    }
    return Span(
        span_id=_hash(8, "call", run_id, call.call_id, str(call.epoch)),
        parent_id=_window_id(run_id, call) if call.phase and call.unit else _root(run_id),
        name=f"{operation} {call.model}" if call.model else operation,
        kind="client",
        start_s=call.start_s,
        end_s=call.start_s + call.latency_s,
        attributes=_known(attributes),
        error=failed,
    )


def window_span(run_id: str, window: records.Window) -> Span:
    """An operation of a memory system: a unit taken in, a question looked up or answered."""
    operation = _MEMORY_OPERATIONS.get(window.phase) if window.phase else None
    attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": window.system if operation else None,
        "gen_ai.memory.store.id": window.scope if operation else None,
        "agentmem.worker.cpu_s": window.worker_cpu_s,
        "agentmem.engine.cpu_s": window.engine_cpu_s,
        "agentmem.energy_j": window.energy_j,
        "agentmem.energy.source": window.energy_source,
        **_place(window),
    }
    return Span(
        span_id=_window_id(run_id, window),
        parent_id=_root(run_id),
        name=operation or window.phase or window.bucket,
        kind="client" if operation else "internal",
        start_s=window.start_s,
        end_s=window.end_s,
        attributes=_known(attributes),
    )


def export(
    run_id: str,
    zero_ns: int,
    rows: Iterable[records.Row],
    exporter: SpanExporter,
    share: float = 1.0,
) -> int:
    """Hand a run's spans to an OpenTelemetry exporter; how many there were.

    `zero_ns` is the wall clock at the run's monotonic zero. Raises UsageError that says what to
    install when OpenTelemetry is not there.
    """
    try:
        from agentmem.telemetry import otel
    except ImportError as error:
        raise UsageError(f"spans need OpenTelemetry: {INSTALL}") from error
    return otel.emit(trace_id(run_id), zero_ns, spans(run_id, rows, share), exporter)


def _settled(call: records.Call, final: records.Reattribution | None) -> records.Call:
    if final is None:
        return call
    return replace(call, phase=final.phase, stage=final.stage, kind=final.kind or call.kind)


def _place(row: records.Call | records.Window) -> dict[str, Attribute | None]:
    return {
        "agentmem.system": row.system,
        "agentmem.history": row.history,
        "agentmem.scope": row.scope,
        "agentmem.phase": row.phase,
        "agentmem.bucket": row.bucket,
        "agentmem.unit": row.unit,
        "agentmem.epoch": row.epoch,
    }


def _error_type(call: records.Call) -> str | None:
    if call.outcome == "ok":
        return None
    return str(call.status) if call.outcome == "http_error" and call.status else call.outcome


def _known(attributes: Mapping[str, Attribute | None]) -> dict[str, Attribute]:
    return {name: value for name, value in attributes.items() if value is not None}


def _root(run_id: str) -> int:
    return _hash(8, "root", run_id)


def _window_id(run_id: str, row: records.Call | records.Window) -> int:
    names = (row.scope, row.phase or "", row.bucket, row.unit or "", str(row.epoch))
    return _hash(8, "window", run_id, *names)


def _hash(size_bytes: int, *names: str) -> int:
    """Integer of that many bytes from some names, each kept apart by its length; never 0."""
    text = "".join(f"{len(name)}:{name}" for name in names)
    return (
        int.from_bytes(hashlib.sha256(text.encode("utf-8", "replace")).digest()[:size_bytes]) or 1
    )
