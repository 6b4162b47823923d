"""How good a measurement was: other work in the way, and what the machine draws doing nothing."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from agentmem.meters import contention
from agentmem.meters.energy import idle_power
from agentmem.records import Contention, Row, Window
from agentmem.runner.context import Context, Place


def note(
    ctx: Context, scope: str | None, edge: Literal["begin", "end"], at_s: float, epoch: int = 0
) -> None:
    """Put the machine's counters on record."""
    now = contention.read()
    cores = len(os.sched_getaffinity(0))
    ctx.write(
        Contention(
            scope, edge, at_s, now.stall_s, now.steal_s, now.busy_s, now.idle_s, cores, epoch
        )
    )


@contextmanager
def watched(ctx: Context, place: Place | None) -> Iterator[None]:
    """Counters at the beginning and end of a scope, or of a session of the run."""
    scope, epoch = (place.scope, place.epoch) if place else (None, 0)
    note(ctx, scope, "begin", ctx.clock(), epoch)
    try:
        yield
    finally:
        note(ctx, scope, "end", ctx.clock(), epoch)


def idle(ctx: Context) -> dict[str, Any] | None:
    """What the run's meter reads while nothing is asked of the machine; None: not measured."""
    seconds = ctx.profile.meters.idle_s
    if seconds <= 0:
        return None
    ctx.progress.note(f"measuring the idle machine for {seconds:g} s")
    found = idle_power(ctx.energy, seconds)
    return {
        "seconds": found.seconds,
        "energy_j": found.energy_j,
        "watts": found.watts,
        "source": found.source,
        "scope": found.scope,
    }


def summary(rows: Iterable[Row], limit: float) -> dict[str, Any]:
    """The manifest's `contention`: shares for the run and each scope, and what exceeds `limit`.

    `wait_share` is the part of the CPU time wanted by worker and engine that they spent waiting for
    a core; it is what `limit` is about. `stall_share` and `steal_share` are the machine's, of the
    time and the core time of the sessions or scope.
    """
    rows = list(rows)
    waits: dict[str | None, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for window in (r for r in rows if isinstance(r, Window)):
        for cpu_s, wait_s in (
            (window.worker_cpu_s, window.worker_wait_s),
            (window.engine_cpu_s, window.engine_wait_s),
        ):
            if cpu_s is not None and wait_s is not None:
                for key in (window.scope, None):
                    waits[key][0] += wait_s
                    waits[key][1] += cpu_s + wait_s
    spans = _spans(r for r in rows if isinstance(r, Contention))
    keys = {k for k in (*waits, *spans) if k is not None}
    scopes = {k: _shares(waits.get(k), spans.get(k, [])) for k in sorted(keys)}
    whole = _shares(waits.get(None), spans.get(None, []))
    flagged = [k for k, shares in scopes.items() if (shares["wait_share"] or 0.0) > limit]
    return {
        "limit": limit,
        "run": whole,
        "exceeded": (whole["wait_share"] or 0.0) > limit,
        "scopes": scopes,
        "flagged": flagged,
    }


def add_to(manifest: dict[str, Any], rows: Iterable[Row], limit: float) -> None:
    """Write the summary into a manifest, with a note where something exceeds the limit."""
    found = summary(rows, limit)
    said = line(found)
    notes = [n for n in manifest.get("notes", []) if not n.startswith("contention:")]
    manifest["contention"] = found
    manifest["notes"] = notes + ([said] if said else [])


def line(found: Mapping[str, Any]) -> str | None:
    """A note for the manifest where something exceeds the limit."""
    if not found["exceeded"] and not found["flagged"]:
        return None
    share = found["run"]["wait_share"]
    return (
        f"contention: worker and engine waited for a core {share:.0%} of the CPU time they wanted "
        f"(limit {found['limit']:.0%}); above it: {', '.join(found['flagged']) or 'the whole run'}"
    )


Pair = tuple[Contention, Contention]


def _spans(rows: Iterable[Contention]) -> dict[str | None, list[Pair]]:
    """Begin and end readings by scope; a begin that a kill left without its end is dropped."""
    found: dict[str | None, list[Pair]] = defaultdict(list)
    begun: dict[str | None, Contention] = {}
    for row in rows:
        if row.edge == "begin":
            begun[row.scope] = row
        elif row.scope in begun:
            found[row.scope].append((begun.pop(row.scope), row))
    return found


def _shares(waits: list[float] | None, spans: list[Pair]) -> dict[str, float | None]:
    seconds = sum(b.at_s - a.at_s for a, b in spans)
    cores_s = sum((b.at_s - a.at_s) * b.cores for a, b in spans)
    stall_s = _sum((a.stall_s, b.stall_s) for a, b in spans)
    steal_s = _sum((a.steal_s, b.steal_s) for a, b in spans)
    return {
        "seconds": seconds if spans else None,
        "wait_share": waits[0] / waits[1] if waits and waits[1] > 0 else None,
        "stall_share": stall_s / seconds if stall_s is not None and seconds > 0 else None,
        "steal_share": steal_s / cores_s if steal_s is not None and cores_s > 0 else None,
    }


def _sum(pairs: Iterable[tuple[float | None, float | None]]) -> float | None:
    """Sum of differences, None when any is unknown or there is none."""
    found = [None if a is None or b is None else b - a for a, b in pairs]
    known = [d for d in found if d is not None]
    return sum(known) if known and len(known) == len(found) else None
