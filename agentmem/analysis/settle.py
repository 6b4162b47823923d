"""Settle a journal: late phases applied, open calls kept, superseded epochs marked as wasted.

The journal is append-only, so what a row means can depend on rows written after it: a tool loop's
calls get their phase when the loop closes, and a unit rerun after a kill supersedes its twin.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from agentmem.records import (
    Call,
    CallBegin,
    Failure,
    Footprint,
    Mark,
    Query,
    Reattribution,
    Row,
    Sample,
    Unit,
    Window,
)

T = TypeVar("T")
E = TypeVar("E", Unit, Query, Footprint)


@dataclass(frozen=True, slots=True)
class Settled:
    """Rows by type as they stand at the end of the journal."""

    calls: tuple[Call, ...]
    booked: Mapping[str, str | None]
    """Phase a call was booked under before any Reattribution, by call id."""
    windows: tuple[Window, ...]
    units: tuple[Unit, ...]
    queries: tuple[Query, ...]
    samples: tuple[Sample, ...]
    footprints: tuple[Footprint, ...]
    failures: tuple[Failure, ...]


def of_type(rows: Iterable[Row], kind: type[T]) -> list[T]:
    return [cast(T, row) for row in rows if isinstance(row, kind)]


def settle(rows: Sequence[Row]) -> Settled:
    """Rows by type, with phases and buckets final."""
    raw = of_type(rows, Call)
    epochs = Epochs.of(rows)
    moves = {row.call_id: row for row in of_type(rows, Reattribution)}
    ended = {call.call_id for call in raw}
    still_open = [_open_call(b) for b in of_type(rows, CallBegin) if b.call_id not in ended]
    calls = [_move(call, moves.get(call.call_id)) for call in (*raw, *still_open)]
    return Settled(
        calls=tuple(_waste(call, epochs) for call in calls),
        booked={call.call_id: call.phase for call in (*raw, *still_open)},
        windows=tuple(_waste(window, epochs) for window in of_type(rows, Window)),
        units=_latest(
            [u for u in of_type(rows, Unit) if epochs.stands(u.scope, u.unit, u.epoch)],
            lambda u: (u.scope, u.unit),
        ),
        queries=_latest(
            [q for q in of_type(rows, Query) if epochs.stands(q.scope, q.question_id, q.epoch)],
            lambda q: (q.scope, q.question_id),
        ),
        samples=tuple(of_type(rows, Sample)),
        footprints=_latest(of_type(rows, Footprint), lambda f: (f.scope, f.store, f.at)),
        failures=tuple(of_type(rows, Failure)),
    )


FLUSH = "flush"
"""Unit name of the flush that ends a construction; done once, however often a scope is resumed."""


@dataclass(frozen=True, slots=True)
class Epochs:
    """Which work of earlier epochs still stands."""

    newest: Mapping[tuple[str, str | None], int]
    """Newest epoch per scope and unit or question; None stands for a scope's set-up."""
    resumed: Mapping[str, tuple[tuple[int, frozenset[str]], ...]]
    """Per scope: epochs that resumed it and what they kept of the ones before."""

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Epochs:
        newest: dict[tuple[str, str | None], int] = {}
        resumed: dict[str, tuple[tuple[int, frozenset[str]], ...]] = {}
        for row in rows:
            if isinstance(row, Call | CallBegin | Window) and (row.unit or row.bucket == "setup"):
                key = (row.scope, row.unit)
                newest[key] = max(newest.get(key, 0), row.epoch)
            if isinstance(row, Mark) and row.what == "resumed":
                kept = (row.epoch, frozenset(row.kept or ()))
                resumed[row.scope] = (*resumed.get(row.scope, ()), kept)
        return cls(newest, resumed)

    def stands(self, scope: str, unit: str | None, epoch: int) -> bool:
        """Whether work on this unit in this epoch was neither done again nor rolled back."""
        if self.newest.get((scope, unit), 0) > epoch:
            return False
        later = (kept for since, kept in self.resumed.get(scope, ()) if since > epoch)
        return unit in (None, FLUSH) or all(unit in kept for kept in later)


W = TypeVar("W", Call, Window)


def _waste(row: W, epochs: Epochs) -> W:
    """A row of work that a kill made useless moves to bucket "wasted"."""
    nameless = row.unit is None and row.bucket != "setup"
    stands = nameless or epochs.stands(row.scope, row.unit, row.epoch)
    return row if stands else replace(row, bucket="wasted")


def _move(call: Call, to: Reattribution | None) -> Call:
    if to is None:
        return call
    return replace(call, phase=to.phase, stage=to.stage or call.stage, kind=to.kind or call.kind)


def _latest(rows: Sequence[E], key: Callable[[E], Hashable]) -> tuple[E, ...]:
    """Rows of the newest epoch per key, in file order; repeats inside an epoch stay visible."""
    keys = [key(row) for row in rows]
    newest: dict[Hashable, int] = {}
    for k, row in zip(keys, rows, strict=True):
        newest[k] = max(newest.get(k, 0), row.epoch)
    return tuple(row for k, row in zip(keys, rows, strict=True) if row.epoch == newest[k])


def _open_call(begin: CallBegin) -> Call:
    """A call that began and never ended: on the bill, everything about its reply unknown."""
    return Call(
        call_id=begin.call_id,
        logical_id=begin.logical_id,
        attempt=0,
        scope=begin.scope,
        system=begin.system,
        history=begin.history,
        operation=begin.operation,
        unit=begin.unit,
        phase=begin.phase,
        bucket=begin.bucket,
        stage=None,
        kind="unknown",
        endpoint=begin.endpoint,
        model=None,
        stream=False,
        start_s=begin.start_s,
        latency_s=float("nan"),
        overhead_s=None,
        ttft_s=None,
        status=None,
        outcome="open",
        error=None,
        input_tokens=None,
        uncached_tokens=None,
        cache_read_tokens=None,
        cache_write_tokens=None,
        output_tokens=None,
        reasoning_tokens=None,
        own_input_tokens=None,
        own_output_tokens=None,
        tokenizer=None,
        sequences=None,
        request_bytes=0,
        response_bytes=0,
        request_hash="",
        response_hash=None,
        finish_reason=None,
        max_tokens=None,
        constrained=None,
        session_id=None,
        sent_session_id=None,
        traffic_class=None,
        sent_temperature=None,
        seed=None,
        retry_count=None,
        engine=None,
        epoch=begin.epoch,
        repeat=begin.repeat,
    )
