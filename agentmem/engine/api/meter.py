"""Counters and histograms of a server, as Prometheus reads them."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agentmem.engine.request import RequestRecord

PREFIX = "agentmem:"
FAST_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0),
)
SLOW_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0),
)


@dataclass(slots=True)
class Histogram:
    """Counts of seconds by upper bound."""

    bounds: Sequence[float]
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """One observation; a value equal to a bound counts below it."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Meter:
    """What has been counted since the start. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counters: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
        self.histograms = {
            "time_to_first_token_seconds": Histogram(FAST_S),
            "e2e_request_latency_seconds": Histogram(SLOW_S),
            "request_queue_time_seconds": Histogram(SLOW_S),
            "request_prefill_time_seconds": Histogram(SLOW_S),
            "request_decode_time_seconds": Histogram(SLOW_S),
        }

    def count(self, name: str, by: int = 1, **labels: str) -> None:
        """Raise a counter."""
        with self._lock:
            self.counters[name, tuple(sorted(labels.items()))] += by

    def ended(self, record: RequestRecord) -> None:
        """An engine request has ended."""
        reason = record.finish_reason or "abort"
        self.count("request_success_total", finished_reason=reason)
        self.count("prompt_tokens_total", record.uncached_tokens + record.cached_tokens)
        self.count("generation_tokens_total", record.generated_tokens)
        seconds = {
            "time_to_first_token_seconds": record.ttft_s,
            "e2e_request_latency_seconds": record.queue_s + record.prefill_s + record.decode_s,
            "request_queue_time_seconds": record.queue_s,
            "request_prefill_time_seconds": record.prefill_s,
            "request_decode_time_seconds": record.decode_s,
        }
        with self._lock:
            for name, value in seconds.items():
                if value is not None:
                    self.histograms[name].add(value)

    def lines(self, labels: Mapping[str, str]) -> list[str]:
        """Everything counted, in the text format; `labels` stand on each line."""
        with self._lock:
            counters = sorted(self.counters.items())
            told = [
                line
                for name, histogram in self.histograms.items()
                for line in _histogram(name, histogram, labels)
            ]
        names: dict[str, list[tuple[float, Mapping[str, str]]]] = {}
        for (name, own), value in counters:
            names.setdefault(name, []).append((value, {**labels, **dict(own)}))
        for name, samples in names.items():
            told += family(name, "counter", HELP[name], samples)
        return told


HELP = {
    "request_success_total": "Engine requests that ended, by reason.",
    "prompt_tokens_total": "Prompt tokens, cached ones included.",
    "generation_tokens_total": "Generated tokens.",
    "time_to_first_token_seconds": "Arrival to first token.",
    "e2e_request_latency_seconds": "Arrival to end.",
    "request_queue_time_seconds": "Time spent waiting.",
    "request_prefill_time_seconds": "Time spent on the prompt.",
    "request_decode_time_seconds": "Time spent generating.",
    "embedding_requests_total": "Embedding requests that ended.",
    "embedding_texts_total": "Texts embedded.",
    "http_refusals_total": "Model calls refused by limits, by reason.",
}


def family(
    name: str, kind: str, about: str, samples: Iterable[tuple[float, Mapping[str, str]]]
) -> list[str]:
    """Lines of one metric: what it is, and a sample for each set of labels."""
    head = [f"# HELP {PREFIX}{name} {about}", f"# TYPE {PREFIX}{name} {kind}"]
    return head + [sample(name, value, labels) for value, labels in samples]


def sample(name: str, value: float, labels: Mapping[str, str]) -> str:
    """One line."""
    told = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    shown = repr(float(value)) if isinstance(value, float) else str(value)
    return f"{PREFIX}{name}{{{told}}} {shown}"


def _histogram(name: str, histogram: Histogram, labels: Mapping[str, str]) -> list[str]:
    lines = [f"# HELP {PREFIX}{name} {HELP[name]}", f"# TYPE {PREFIX}{name} histogram"]
    seen = 0
    for bound, count in zip([*histogram.bounds, None], histogram.counts, strict=True):
        seen += count
        le = "+Inf" if bound is None else repr(float(bound))
        lines.append(sample(f"{name}_bucket", seen, {**labels, "le": le}))
    lines.append(sample(f"{name}_sum", histogram.total, labels))
    return [*lines, sample(f"{name}_count", seen, labels)]


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
