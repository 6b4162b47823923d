"""What `compare` compares: every quantity with its phase, its group and which way is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Group = Literal["time", "cpu", "energy", "count", "size", "score"]
GROUPS: tuple[Group, ...] = ("time", "cpu", "energy", "count", "size", "score")
ROOMS = ("construction", "retrieval", "generation", "question")
"""Where a quantity belongs; `question` is retrieval and generation together."""

MARGINS: dict[Group, float] = {
    "time": 0.10,
    "cpu": 0.10,
    "energy": 0.10,
    "count": 0.0,
    "size": 0.01,
    "score": 0.0,
}
"""Smallest effect of interest: relative, for scores in shares of one. Two runs of the same thing
differ in time as the machine drifts, and that moves all pairs of a run together."""

FLOOR_S = 0.005
"""Seconds per pair below which a difference in time is of pipes and schedulers, not of systems."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One quantity, per pair: a unit, a question, or a part of a store."""

    name: str
    room: str
    group: Group
    headline: bool = True
    """Always printed; the others on a terminal only where they stand out."""
    higher_is_better: bool = False

    @property
    def key(self) -> str:
        return f"{self.room}.{self.name}"

    @property
    def exact(self) -> bool:
        """Without noise of its own once the model's sampling is fixed."""
        return self.group in ("count", "size")


def _spent(room: str) -> tuple[Metric, ...]:
    return (
        Metric("seconds", room, "time"),
        Metric("cpu_seconds", room, "cpu"),
        Metric("energy_j", room, "energy", headline=False),
        Metric("calls", room, "count"),
        Metric("tokens", room, "count"),
        Metric("input_tokens", room, "count", headline=False),
        Metric("output_tokens", room, "count", headline=False),
        Metric("embed_tokens", room, "count", headline=False),
    )


def _score(room: str, name: str, headline: bool = False, up: bool = True) -> Metric:
    return Metric(name, room, "score", headline, up)


METRICS: tuple[Metric, ...] = (
    *_spent("construction"),
    Metric("lost", "construction", "count", headline=False),
    Metric("failed", "construction", "count", headline=False),
    Metric("bytes", "construction", "size"),
    *_spent("retrieval"),
    _score("retrieval", "recall_ids"),
    _score("retrieval", "recall_text"),
    *_spent("generation"),
    Metric("ttft", "generation", "time", headline=False),
    Metric("seconds", "question", "time"),
    Metric("failed", "question", "count", headline=False),
    _score("question", "accuracy", headline=True),
    _score("question", "f1"),
    _score("question", "stale", up=False),
)
NAMES = tuple(dict.fromkeys(m.name for m in METRICS))
