"""The one file that imports OpenTelemetry: hands finished spans to an exporter.

A private tracer provider is used, so that a program's own tracing is neither used nor disturbed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SpanExporter,
)
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from agentmem.errors import DataError
from agentmem.telemetry.spans import Span

_FLUSH_SPANS = 500
"""Fewer than the batch processor's queue holds: a full queue drops spans silently."""
_KINDS = {"client": trace.SpanKind.CLIENT, "internal": trace.SpanKind.INTERNAL}


class _GivenIds(IdGenerator):
    """Gives out the ids that were set just before a span is started."""

    trace_id = 0
    span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


def emit(trace_id: int, zero_ns: int, spans: Iterable[Span], exporter: SpanExporter) -> int:
    """Export all spans and shut the exporter down; how many there were."""
    ids = _GivenIds()
    ids.trace_id = trace_id
    resource = Resource({"service.name": "agentmem"})
    provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, id_generator=ids)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("agentmem")
    count = 0
    for span in spans:
        ids.span_id = span.span_id
        _emit_one(tracer, trace_id, zero_ns, span)
        count += 1
        if count % _FLUSH_SPANS == 0:
            provider.force_flush()
    provider.shutdown()
    return count


def file_exporter(path: Path) -> SpanExporter:
    """An exporter that writes one JSON object a line. Raises DataError for an unwritable path."""
    try:
        file = path.open("w", encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: cannot write spans: {error.strerror}") from error
    return ConsoleSpanExporter(
        out=file, formatter=lambda span: json.dumps(json.loads(span.to_json())) + "\n"
    )


def _emit_one(tracer: trace.Tracer, trace_id: int, zero_ns: int, span: Span) -> None:
    context = None
    if span.parent_id is not None:
        sampled = trace.TraceFlags(trace.TraceFlags.SAMPLED)
        parent = trace.SpanContext(trace_id, span.parent_id, False, sampled)
        context = trace.set_span_in_context(trace.NonRecordingSpan(parent))
    started = tracer.start_span(
        span.name,
        context=context,
        kind=_KINDS[span.kind],
        attributes=dict(span.attributes),
        start_time=zero_ns + round(span.start_s * 1e9),
    )
    if span.error is not None:
        started.set_status(trace.StatusCode.ERROR, span.error)
    started.end(zero_ns + round(span.end_s * 1e9))
