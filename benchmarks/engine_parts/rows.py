"""From figures of rounds to rows: medians, spreads, ratios in which higher is better."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

MISSING = "not available"


@dataclass(slots=True)
class Row:
    """One line of the result. Without `ratio`, `status` and `reason` say why."""

    work: str
    model: str
    mode: str
    unit: str
    ours: float | None = None
    """Median over the rounds."""
    best_peer: float | None = None
    """Median of the best rival, in the same unit."""
    peer: str | None = None
    ratio: float | None = None
    """Median over the rounds of ours / peer, or peer / ours for times and bytes."""
    target: float | None = None
    spread: float | None = None
    """(largest - smallest) / median of ours."""
    ratio_range: tuple[float, float] | None = None
    status: str = "measured"
    reason: str = ""
    threads: int | None = None
    backend: str | None = None
    kv: str | None = None
    perplexity: float | None = None
    perplexity_loss: float | None = None
    """Relative to bf16: 0.01 is one per cent worse."""
    peers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By name: mode, median, spread; or why it is not there."""
    conditions: list[dict[str, float]] = field(default_factory=list)
    """Of each round: bandwidth, matrix product, cores that others used."""
    rounds: dict[str, list[float | None]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None without one or without a figure."""
        if self.target is None or self.ratio is None:
            return None
        return self.ratio >= self.target

    def as_dict(self) -> dict[str, Any]:
        """As it is written."""
        return {**asdict(self), "met": self.met}


def not_available(work: str, model: str, mode: str, unit: str, reason: str) -> Row:
    """A row that says why there is no figure."""
    return Row(work, model, mode, unit, status=MISSING, reason=reason)


def spread(values: Sequence[float]) -> float:
    """(largest - smallest) / median."""
    return (max(values) - min(values)) / statistics.median(values)


def known(values: Sequence[float | None]) -> list[float]:
    """Those that are there."""
    return [value for value in values if value is not None]


def ratios(ours: Sequence[float | None], theirs: Sequence[float | None], rate: bool) -> list[float]:
    """Round by round, higher is better; rounds in which one is missing are left out."""
    pairs = zip(ours, theirs, strict=True)
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    return [a / b if rate else b / a for a, b in both]


def compare(
    row: Row,
    ours: Sequence[float | None],
    rivals: Mapping[str, Sequence[float | None]],
    rate: bool,
) -> Row:
    """Fill the row: the best rival is the one with the best median."""
    mine = known(ours)
    row.rounds = {"ours": list(ours), **{name: list(v) for name, v in rivals.items()}}
    medians = {name: statistics.median(known(v)) for name, v in rivals.items() if known(v)}
    for name, middle in medians.items():
        told = row.peers.setdefault(name, {})
        told |= {"median": middle, "spread": spread(known(rivals[name]))}
    if not mine:
        row.status, row.reason = MISSING, row.reason or "no round gave a figure"
        return row
    row.ours, row.spread = statistics.median(mine), spread(mine)
    if not medians:
        row.reason = row.reason or "nothing to compare with"
        return row
    row.peer = (max if rate else min)(medians, key=lambda name: medians[name])
    row.best_peer = medians[row.peer]
    found = ratios(ours, rivals[row.peer], rate)
    if not found:
        row.reason = row.reason or "no round in which both gave a figure"
        return row
    row.ratio, row.ratio_range = statistics.median(found), (min(found), max(found))
    return row


def perplexities(data: Any, model: str = "") -> dict[tuple[str, str], tuple[float, float | None]]:
    """(perplexity, loss against bf16) by (model, mode), wherever they stand in a JSON document.

    The model is the nearest `model` around; "" where none is named.
    """
    found: dict[tuple[str, str], tuple[float, float | None]] = {}
    if isinstance(data, list):
        for item in data:
            found |= perplexities(item, model)
    elif isinstance(data, dict):
        named = data.get("model", model)
        named = named if isinstance(named, str) else model
        value, mode = data.get("perplexity"), data.get("mode")
        if isinstance(mode, str) and isinstance(value, int | float):
            found[named, mode] = (float(value), data.get("loss"))
        for item in data.values():
            if isinstance(item, dict | list):
                found |= perplexities(item, named)
    return found
