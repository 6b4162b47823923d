"""Spans: what the rows say, under the conventions' names, with ids that repeat."""

from __future__ import annotations

import builtins
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agentmem import records
from agentmem.errors import UsageError
from agentmem.telemetry.spans import Span, call_span, export, spans, trace_id, window_span

from .rows import make_call, make_footprint, make_window

ZERO_NS = 1_700_000_000_000_000_000


def _rows() -> list[records.Row]:
    return [
        make_call("a"),
        make_call("b", outcome="http_error", status=503, error="busy", input_tokens=None),
        make_window(),
        make_footprint(1),
        make_call("c", unit=None, phase=None, bucket="unattributed", start_s=4.0),
    ]


def test_call_span_says_what_the_call_says_and_leaves_out_what_is_unknown() -> None:
    span = call_span("run", make_call(stream=True, ttft_s=0.125))
    assert (span.name, span.kind, span.start_s, span.end_s) == ("chat m", "client", 1.0, 1.5)
    assert span.attributes["gen_ai.operation.name"] == "chat"
    assert span.attributes["gen_ai.usage.input_tokens"] == 100
    assert span.attributes["gen_ai.usage.output_tokens"] == 7
    assert span.attributes["gen_ai.response.time_to_first_chunk"] == 0.125
    assert span.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert span.attributes["agentmem.phase"] == "construction"
    assert "gen_ai.usage.cache_read.input_tokens" not in span.attributes
    assert None not in span.attributes.values()
    assert span.error is None
    waited = call_span("run", make_call(stream=False, ttft_s=0.125))
    assert "gen_ai.response.time_to_first_chunk" not in waited.attributes


def test_embedding_and_failed_calls() -> None:
    embed = call_span("run", make_call(endpoint="embedding", model=None))
    assert embed.name == "embeddings"
    failed = call_span("run", make_call(outcome="http_error", status=503, error="busy"))
    assert (failed.error, failed.attributes["error.type"]) == ("busy", "503")
    cut = call_span("run", make_call(outcome="abandoned", status=None))
    assert (cut.error, cut.attributes["error.type"]) == ("abandoned", "abandoned")


@pytest.mark.parametrize(
    ("phase", "operation", "name", "kind"),
    [
        ("construction", "upsert_memory", "upsert_memory", "client"),
        ("retrieval", "search_memory", "search_memory", "client"),
        ("generation", None, "generation", "internal"),
        (None, None, "measured", "internal"),
    ],
)
def test_windows_are_memory_operations(
    phase: records.Phase | None, operation: str | None, name: str, kind: str
) -> None:
    span = window_span("run", make_window(phase))
    assert (span.name, span.kind) == (name, kind)
    assert span.attributes.get("gen_ai.operation.name") == operation
    assert span.attributes.get("gen_ai.memory.store.id") == ("s1" if operation else None)


def test_calls_hang_under_their_window_and_strays_under_the_run() -> None:
    a, b, window, stray, root = spans("run", _rows())
    assert a.parent_id == b.parent_id == window.span_id
    assert stray.parent_id == window.parent_id == root.span_id
    assert root.parent_id is None and root.end_s == 4.5
    assert len({s.span_id for s in (a, b, window, stray, root)}) == 5


def test_reattribution_moves_a_call_to_its_final_window() -> None:
    late = records.Reattribution("a", "generation", "generate", "answer", "final text")
    (call,) = [s for s in spans("run", [make_call("a"), late]) if s.kind == "client"]
    assert call.attributes["agentmem.phase"] == "generation"
    assert call.attributes["agentmem.kind"] == "answer"
    assert call.parent_id == window_span("run", make_window("generation")).span_id


def test_ids_repeat_for_one_run_and_differ_for_another() -> None:
    first, again = list(spans("run", _rows())), list(spans("run", _rows()))
    assert first == again
    other = {s.span_id for s in spans("run2", _rows())}
    assert not other & {s.span_id for s in first}
    assert trace_id("run") != trace_id("run2") and 0 < trace_id("run") < 2**128


def test_share_takes_some_calls_and_all_windows() -> None:
    rows: list[records.Row] = [make_call(f"c{n}") for n in range(400)]
    rows.append(make_window())
    some = list(spans("run", rows, share=0.25))
    assert 60 < sum(s.name == "chat m" for s in some) < 140
    assert len(list(spans("run", rows, share=0.0))) == 2
    assert len(list(spans("run", rows))) == 402


def test_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "agentmem.telemetry.otel", raising=False)
    monkeypatch.delattr("agentmem.telemetry.otel", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match=r"pip install 'agentmem-profiler\[otel\]'"):
        export("run", ZERO_NS, _rows(), exporter=None)  # type: ignore[arg-type]


def test_exported_spans_have_our_ids_parents_and_times() -> None:
    pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry is not installed")
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.trace import StatusCode

    class Slow(InMemorySpanExporter):
        """Slower than spans are made: an exporter that is not waited for would lose some."""

        def export(self, spans: Any) -> Any:
            time.sleep(0.1)
            return super().export(spans)

    exporter = Slow()
    rows: list[records.Row] = [*_rows(), *(make_call(f"m{n}") for n in range(3000))]
    assert export("run", ZERO_NS, rows, exporter) == 3005
    finished = exporter.get_finished_spans()
    assert len(finished) == 3005
    by_id = {s.context.span_id: s for s in finished}
    assert {s.context.trace_id for s in finished} == {trace_id("run")}
    wanted: dict[int, Span] = {s.span_id: s for s in spans("run", rows)}
    assert by_id.keys() == wanted.keys()
    for span_id, span in wanted.items():
        found = by_id[span_id]
        assert (found.parent.span_id if found.parent else None) == span.parent_id
        assert found.start_time == ZERO_NS + round(span.start_s * 1e9)
        assert found.end_time == ZERO_NS + round(span.end_s * 1e9)
        assert dict(found.attributes or {}) == dict(span.attributes)
        assert (found.status.status_code is StatusCode.ERROR) == (span.error is not None)


def test_file_exporter_writes_a_span_a_line(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry is not installed")
    from agentmem.telemetry.otel import file_exporter

    count = export("run", ZERO_NS, _rows(), file_exporter(tmp_path / "spans.jsonl"))
    lines = [json.loads(line) for line in (tmp_path / "spans.jsonl").read_text().splitlines()]
    assert len(lines) == count == 5
    assert {line["name"] for line in lines} >= {"chat m", "upsert_memory", "agentmem run"}
