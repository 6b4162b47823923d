"""Who is known, in which phase each scope is, what is in flight, what has been booked."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from agentmem.gateway.attempts import Attempts, Logical
from agentmem.records import Bucket, Call, Phase, Reattribution, Scope


@dataclass(frozen=True, slots=True)
class Slot:
    """What a scope, or one operation of it, is doing now."""

    phase: Phase | None = None
    bucket: Bucket = "unattributed"
    unit: str | None = None


OUTSIDE = Slot()
"""Outside any phase."""


@dataclass(slots=True)
class ScopeState:
    """One scope's book. Guarded by the lock of its `ScopeBook`."""

    scope: Scope
    closed: bool = False
    slots: dict[str | None, Slot] = field(default_factory=dict)
    """By operation; None is the scope itself."""
    in_flight: Counter[str | None] = field(default_factory=Counter)
    """By operation."""
    last_change: float = 0.0
    """`time.monotonic` of the last arrival or booking."""
    attempts: Attempts = field(default_factory=Attempts)
    calls: dict[str, Call] = field(default_factory=dict)
    transport_failures: Counter[str | None] = field(default_factory=Counter)
    """By operation."""

    def slot_of(self, operation: str | None) -> Slot:
        if self.closed:
            return OUTSIDE
        return self.slots.get(operation, self.slots.get(None, OUTSIDE))

    def broken(self, operations: tuple[str, ...]) -> int:
        failures = self.transport_failures
        return sum(failures[o] for o in operations) if operations else failures.total()

    def busy(self, operation: str | None) -> int:
        return self.in_flight.total() if operation is None else self.in_flight[operation]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that reached a known scope; its phase is decided here and now."""

    state: ScopeState
    operation: str | None
    slot: Slot
    epoch: int


class ScopeBook:
    """All scopes of a run. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._states: dict[str, ScopeState] = {}
        self._changed = threading.Condition()

    def open(self, scope: Scope) -> None:
        """Make a scope known, or open it again with a later epoch after it was closed."""
        with self._changed:
            known = self._states.get(scope.scope)
            if known is None:
                self._states[scope.scope] = ScopeState(scope)
                return
            if not known.closed:
                raise ValueError(f"scope {scope.scope!r} is already open")
            known.scope, known.closed, known.attempts = scope, False, Attempts()

    def close(self, scope_id: str) -> None:
        with self._changed:
            state = self._states[scope_id]
            state.closed = True
            state.slots.clear()

    def set_slot(self, scope_id: str, operation: str | None, slot: Slot) -> None:
        with self._changed:
            self._states[scope_id].slots[operation] = slot

    def arrive(self, scope_id: str, operation: str | None) -> Arrival | None:
        """Count a request in; None for a scope that was never handed out."""
        with self._changed:
            state = self._states.get(scope_id)
            if state is None:
                return None
            state.in_flight[operation] += 1
            state.last_change = time.monotonic()
            return Arrival(state, operation, state.slot_of(operation), state.scope.epoch)

    def leave(self, arrival: Arrival) -> None:
        """Count a request out, after its row is written."""
        with self._changed:
            arrival.state.in_flight[arrival.operation] -= 1
            arrival.state.last_change = time.monotonic()
            self._changed.notify_all()

    def attempt(
        self, arrival: Arrival, body_hash: str, retries: int | None, call_id: str
    ) -> tuple[Logical, int]:
        """Logical call of an attempt, and the attempt's number in it."""
        with self._changed:
            logical = arrival.state.attempts.begin(body_hash, retries, call_id, arrival.slot.unit)
            return logical, logical.attempts - 1

    def transport_failed(self, arrival: Arrival) -> None:
        with self._changed:
            arrival.state.transport_failures[arrival.operation] += 1

    def book(self, state: ScopeState, call: Call) -> None:
        with self._changed:
            state.calls[call.call_id] = call

    def reattribute(self, row: Reattribution) -> None:
        """Apply a final attribution to a booked call; KeyError for a call nobody booked."""
        with self._changed:
            for state in self._states.values():
                if (call := state.calls.get(row.call_id)) is not None:
                    state.calls[row.call_id] = dataclasses.replace(
                        call, phase=row.phase, stage=row.stage, kind=row.kind or call.kind
                    )
                    return
        raise KeyError(row.call_id)

    def calls_of(self, scope_id: str, since_s: float) -> list[Call]:
        with self._changed:
            calls = self._states[scope_id].calls.values()
            return [call for call in calls if call.start_s >= since_s]

    def read(self, scope_id: str, what: Callable[[ScopeState], int]) -> int:
        with self._changed:
            return what(self._states[scope_id])

    def total_in_flight(self) -> int:
        with self._changed:
            return sum(state.busy(None) for state in self._states.values())

    def wait_quiet(
        self,
        scope_id: str,
        operation: str | None,
        interval_s: float,
        timeout_s: float,
        close_phase: bool,
    ) -> float | None:
        """Block until nothing has been in flight for `interval_s`; seconds it took, or None."""
        began = time.monotonic()
        with self._changed:
            state = self._states[scope_id]
            while True:
                now = time.monotonic()
                due = max(began, state.last_change) + interval_s
                if state.busy(operation) == 0 and now >= due:
                    if close_phase:
                        state.slots[operation] = OUTSIDE
                    return now - began
                if now - began >= timeout_s:
                    return None
                until = due if state.busy(operation) == 0 else began + timeout_s
                self._changed.wait(max(0.0, min(until, began + timeout_s) - now))
