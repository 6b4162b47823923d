"""What makes the work on a unit or question worthless, so that it is rolled back and done again.

Upstreams swallow failed calls and go on with less, so a verb that returned proves nothing: what
the gateway saw of its calls decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agentmem.records import Call
from agentmem.runner.context import Context, Place
from agentmem.runner.resume import CLIENT_TIMEOUT
from agentmem.runner.seat import MAX_RESTARTS, ScopeLostError, Seat
from agentmem.sandbox.failure import WorkerFailure

MAX_ROLLBACKS = 2
"""Per unit or question; after that it stands as it is, with its failures on record."""
LONGER = 2.0
"""Factor on the time-outs of model calls once one of a scope's ran out."""
_NEARLY = 0.95
"""An abandoned call that lasted this part of the time-out was given up for it."""


class RollBackError(Exception):
    """The work on one unit or question cannot be trusted."""

    def __init__(self, unit: str, kind: str, message: str) -> None:
        super().__init__(unit)
        self.unit, self.kind, self.message = unit, kind, message


@dataclass(frozen=True, slots=True)
class Before:
    """Where the gateway's book stood when work began."""

    at_s: float
    broken: int
    operations: tuple[str, ...]
    """Whose calls count; none: all of the scope's."""


@dataclass(slots=True)
class Trust:
    """One scope's judge. Lives as long as the scope, over all its epochs."""

    ctx: Context
    rollbacks: dict[str, int] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)
    """Units and questions at which the worker was lost every time: not tried again in this run."""
    workers_lost: int = 0

    def begin(self, place: Place, *operations: str) -> Before:
        broken = self.ctx.trouble(place.scope, *operations)
        return Before(self.ctx.clock(), broken, operations)

    def check(self, place: Place, seat: Seat, unit: str, before: Before) -> None:
        """RollBackError when the work since `before` must be done again."""
        self.check_worker(place, seat, unit)
        if self.ctx.trouble(place.scope, *before.operations) > before.broken:
            if self.rollbacks.get(unit, 0) < MAX_ROLLBACKS:
                self._again(unit)
                message = "a call to the model server broke; rolled back and done again"
                raise RollBackError(unit, "rolled_back", message)
            self.ctx.wait_for_engine()
        elif self._gave_up(place, seat, unit, before.at_s):
            limit_s = seat.request_timeout_s
            if seat.patience < LONGER:
                self._again(unit)
                message = (
                    f"a model call was given up after {limit_s:g} s; rolled back, to be done "
                    f"again with {limit_s * LONGER:g} s"
                )
                raise RollBackError(unit, CLIENT_TIMEOUT, message)
            message = f"a model call was given up after {limit_s:g} s, the longer time-out; stands"
            place.failure(self.ctx, "call", unit, CLIENT_TIMEOUT, message)

    def check_worker(self, place: Place, seat: Seat, unit: str) -> None:
        """RollBackError when the worker died or hung: what it had not written out is lost.

        ScopeLostError when that happened too often.
        """
        failure = seat.raised.get(unit)
        if failure is None or failure.kind == "raised":
            return
        self.workers_lost += not seat.lost  # a worker lost in two verbs at once counts once
        seat.lost = True
        if self.workers_lost > MAX_RESTARTS:
            message = f"its worker was lost {self.workers_lost} times"
            place.failure(self.ctx, "worker", unit, "gave_up", message)
            raise ScopeLostError
        kind, message = self._after_loss(seat, unit, failure)
        self._again(unit)
        raise RollBackError(unit, kind, message)

    def _after_loss(self, seat: Seat, unit: str, failure: WorkerFailure) -> tuple[str, str]:
        """Kind and message of the roll-back; a worker that hung gets more time, once."""
        if failure.kind == "timeout" and seat.patience < LONGER:
            return CLIENT_TIMEOUT, "its worker hung; rolled back, to be done again with more time"
        if failure.kind != "timeout" and self.rollbacks.get(unit, 0) < MAX_ROLLBACKS:
            return "rolled_back", "its worker was lost; rolled back and done again"
        self.left_out.add(unit)
        return "left_out", "its worker was lost every time; rolled back and left out"

    def _again(self, unit: str) -> None:
        self.rollbacks[unit] = self.rollbacks.get(unit, 0) + 1

    def _gave_up(self, place: Place, seat: Seat, unit: str, since_s: float) -> bool:
        """A client closed a call because it had waited long enough."""
        failure = seat.raised.get(unit)
        blamed = failure is not None and _speaks_of_time(failure.message)
        return any(
            call.unit == unit
            and call.outcome == "abandoned"
            and (blamed or call.latency_s >= _NEARLY * self._limit_s(seat, call))
            for call in self.ctx.gateway.calls_of(place.scope, since_s)
        )

    def _limit_s(self, seat: Seat, call: Call) -> float:
        """The reader that asks from what was retrieved is ours and has a time-out of its own."""
        ours = call.phase == "generation" and not seat.native
        query_s = self.ctx.profile.limits.query_timeout_s * seat.patience
        return query_s if ours else seat.request_timeout_s


def _speaks_of_time(message: str) -> bool:
    plain = message.lower()
    return "timeout" in plain or "timed out" in plain or "time-out" in plain
