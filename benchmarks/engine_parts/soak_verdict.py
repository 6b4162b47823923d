"""What a soak found: times to first token by phase, growth, requests that never ended."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.engine_parts.ours import high
from benchmarks.engine_parts.soak_clients import Answer
from benchmarks.engine_parts.soak_server import Reading

PHASES = ("alone", "classes", "no classes")
MEMORY_SLACK_MB, MEMORY_SLACK_PART = 16.0, 0.04
FULL = 0.95
"""Share of blocks that hold something when the cache is called full."""
TARGET = 1.5


@dataclass(frozen=True, slots=True)
class Growth:
    """A series between its first and its last third. Only full caches are looked at, if any."""

    what: str
    first: float
    last: float
    grew: bool


def ttft(answers: Sequence[Answer]) -> dict[str, dict[str, float | int | None]]:
    """Interactive p50 and p95 by phase, in seconds; of answers that came to their end."""
    found: dict[str, dict[str, float | int | None]] = {}
    for phase in PHASES:
        times = [
            answer.ttft_s
            for answer in answers
            if (answer.phase, answer.kind, answer.ended) == (phase, "interactive", "done")
            and answer.ttft_s is not None
        ]
        found[phase] = {
            "count": len(times),
            "p50_s": statistics.median(times) if times else None,
            "p95_s": high(times) if times else None,
        }
    return found


def p95_ratio(found: dict[str, dict[str, Any]], phase: str) -> float | None:
    """How many times its p95 alone a phase's p95 is."""
    alone, loaded = found["alone"]["p95_s"], found[phase]["p95_s"]
    return loaded / alone if alone and loaded else None


def growth(readings: Sequence[Reading]) -> list[Growth]:
    """Series of quiet moments: memory with some slack, countable things with none.

    Keys and values are touched one after another until the cache is full, which is no leak: memory
    is judged from then on, or over the second half when it never was.
    """
    quiet = [reading for reading in readings if reading.quiet][1:]
    if len(quiet) < 3:
        return []
    found = [_judge("threads", quiet), _judge("files", quiet), _judge("blocks_used", quiet)]
    full = [reading for reading in quiet if _filled(reading) >= FULL]
    kept = full if len(full) >= 3 else quiet[len(quiet) // 2 :]
    return [*found, _judge("memory_mb", kept)]


def stuck(answers: Sequence[Answer], last: Reading | None) -> list[str]:
    """Requests that never ended, for the client or inside the server."""
    found = [f"{a.kind} in {a.phase}: {a.wall_s:.0f} s" for a in answers if a.ended == "stuck"]
    if last is not None and last.running + last.waiting + last.blocks_used:
        found.append(
            f"at the end {last.running:.0f} run, {last.waiting:.0f} wait, "
            f"{last.blocks_used:.0f} blocks are used"
        )
    return found


def summary(answers: Sequence[Answer], readings: Sequence[Reading]) -> dict[str, Any]:
    """Everything that is judged, as it is written."""
    times = ttft(answers)
    grown = growth(readings)
    last = readings[-1] if readings else None
    hung = stuck(answers, last)
    failed = Counter(a.detail for a in answers if a.ended == "failed")
    return {
        "ttft": times,
        "p95_ratio": {phase: p95_ratio(times, phase) for phase in PHASES[1:]},
        "target": TARGET,
        "answers": {
            kind: dict(Counter(a.ended for a in answers if a.kind == kind))
            for kind in ("interactive", "background")
        },
        "failed": dict(failed.most_common(10)),
        "stuck": hung,
        "growth": [asdict(one) for one in grown],
        "grew": [one.what for one in grown if one.grew],
    }


def _filled(reading: Reading) -> float:
    held = reading.blocks_used + reading.blocks_cached
    return held / max(1.0, held + reading.blocks_free)


def _judge(what: str, readings: Sequence[Reading]) -> Growth:
    values = [float(getattr(reading, what)) for reading in readings]
    third = max(1, len(values) // 3)
    first, last = statistics.median(values[:third]), statistics.median(values[-third:])
    slack = max(MEMORY_SLACK_MB, MEMORY_SLACK_PART * first) if what == "memory_mb" else 0.0
    return Growth(what, first, last, last - first > slack)
