"""Let a system answer in its own loop, and sort the calls of that loop afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from agentmem.memory import Answer, Called
from agentmem.records import Bucket, Call, CallBegin, Row
from agentmem.runner.classify import Tile, Verdict, tiles, unmatched, verdicts
from agentmem.runner.context import Context, Place
from agentmem.runner.readings import Reading, Task, read, wait_quiet, write_window
from agentmem.runner.seat import Seat
from agentmem.runner.windows import Member, Windows
from agentmem.workloads.base import Question


@dataclass(frozen=True, slots=True)
class Native:
    """What became of one native answer. Times are None when it failed."""

    answer: Answer | None
    retrieval_s: float | None
    generation_s: float | None


def native(
    ctx: Context,
    place: Place,
    seat: Seat,
    question: Question,
    windows: Windows,
    *,
    bucket: Bucket = "measured",
    operation: str | None = None,
) -> Native:
    """Ask, then give every call of the operation its final phase and cut its time accordingly."""
    qid = question.question_id
    ctx.gateway.set_phase(place.scope, "retrieval", bucket, qid, operation)
    user, limit_s = seat.history.user, ctx.profile.limits.query_timeout_s * seat.patience
    member = Member()
    with windows.joined(member), tapped(ctx, place, operation) as meter:
        try:
            answer = seat.call("answer", qid, lambda w: w.answer(user, question.text, limit_s))
            answered_s = ctx.clock()
            wait_quiet(ctx, place, qid, 0.0, operation)
        finally:
            last = meter.take()
    first = meter.readings[0]
    found = _sorted_calls(ctx, place, qid, first.at_s, operation, answer)
    cut = tiles(first.at_s, last.at_s, found)
    for tile in cut:
        span = (tile.start_s, tile.end_s)
        costs = (meter.at(tile.start_s), meter.at(tile.end_s)) if member.alone else None
        write_window(ctx, place, Task(tile.phase, bucket, qid), span, 0.0, costs)
    if answer is None:
        return Native(None, None, None)
    return Native(
        answer,
        _seconds(cut, "retrieval", answered_s),
        _seconds(cut, "generation", answered_s),
    )


def _sorted_calls(
    ctx: Context,
    place: Place,
    qid: str,
    since_s: float,
    operation: str | None,
    answer: Answer | None,
) -> list[Verdict]:
    """Reattribute the operation's calls; those of a failed answer stay as they were booked."""
    calls = [
        c
        for c in ctx.gateway.calls_of(place.scope, since_s)
        if c.unit == qid and (operation is None or c.operation == operation)
    ]
    said: tuple[Called, ...] = answer.calls if answer is not None else (Called("retrieval"),)
    found = verdicts(calls, said)
    if answer is None:
        return found
    for entry in unmatched(calls, said):
        message = f"the adapter's {entry} names none of the answer's {len(calls)} calls"
        place.failure(ctx, "answer", qid, "unclassified", message)
    for v in found:
        ctx.gateway.reattribute([v.call.call_id], v.phase, v.stage, v.kind, v.reason)
    return found


def _seconds(cut: list[Tile], phase: str, until_s: float) -> float:
    spans = ((t.start_s, min(t.end_s, until_s)) for t in cut if t.phase == phase)
    return sum(max(end - start, 0.0) for start, end in spans)


@dataclass(slots=True)
class EdgeMeter:
    """Readings whenever a call begins or ends, so that a window can be cut there later."""

    ctx: Context
    place: Place
    operation: str | None
    readings: list[Reading] = field(default_factory=list)

    def take(self) -> Reading:
        self.readings.append(read(self.ctx, self.place))
        return self.readings[-1]

    def __call__(self, row: Row) -> None:
        if isinstance(row, Call | CallBegin) and self.operation in (None, row.operation):
            self.take()

    def at(self, at_s: float) -> Reading:
        """The first reading made at that moment or after it."""
        later = [r for r in self.readings if r.at_s >= at_s]
        return min(later, key=lambda r: r.at_s)


@contextmanager
def tapped(ctx: Context, place: Place, operation: str | None) -> Iterator[EdgeMeter]:
    """Have a meter read at every edge of the scope's calls meanwhile."""
    meter = EdgeMeter(ctx, place, operation)
    meter.take()
    ctx.taps[place.scope] = meter
    try:
        yield meter
    finally:
        del ctx.taps[place.scope]
