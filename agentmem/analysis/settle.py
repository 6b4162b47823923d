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
    newest = _newest_epochs(rows)
    moves = {row.call_id: row for row in of_type(rows, Reattribution)}
    ended = {call.call_id for call in raw}
    still_open = [_open_call(b) for b in of_type(rows, CallBegin) if b.call_id not in ended]
    calls = [_move(call, moves.get(call.call_id)) for call in (*raw, *still_open)]
    return Settled(
        calls=tuple(_waste(call, newest) for call in calls),
        booked={call.call_id: call.phase for call in (*raw, *still_open)},
        windows=tuple(_waste(window, newest) for window in of_type(rows, Window)),
        units=_latest(of_type(rows, Unit), lambda u: (u.scope, u.unit)),
        queries=_latest(of_type(rows, Query), lambda q: (q.scope, q.question_id)),
        samples=tuple(of_type(rows, Sample)),
        footprints=_latest(of_type(rows, Footprint), lambda f: (f.scope, f.store, f.at)),
        failures=tuple(of_type(rows, Failure)),
    )


def _newest_epochs(rows: Iterable[Row]) -> dict[tuple[str, str], int]:
    """Newest epoch in which each (scope, unit or question) was worked on."""
    newest: dict[tuple[str, str], int] = {}
    for row in rows:
        if isinstance(row, Call | CallBegin | Window) and row.unit is not None:
            key = (row.scope, row.unit)
            newest[key] = max(newest.get(key, 0), row.epoch)
    return newest


W = TypeVar("W", Call, Window)


def _waste(row: W, newest: Mapping[tuple[str, str], int]) -> W:
    """A row of a unit that a later epoch did again moves to bucket "wasted"."""
    again = row.unit is not None and newest[(row.scope, row.unit)] > row.epoch
    return replace(row, bucket="wasted") if again else row


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
    )
