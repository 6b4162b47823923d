"""The windows that put a scope's work on the clock, also where two are open together.

Meters read a process as a whole. Of two pieces of work that ran at the same time neither's share
is known, so their own windows say so, and one further window holds what both cost together.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from agentmem.runner.context import Context, Place
from agentmem.runner.readings import Reading, Task, before_start, read, wait_quiet, write_window


@dataclass(slots=True)
class Member:
    """One open window."""

    alone: bool = True


@dataclass(slots=True)
class Windows:
    """The open windows of one scope. Safe from several threads."""

    ctx: Context
    place: Place
    _open: list[Member] = field(default_factory=list)
    _first: Reading | None = None
    _shared: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def joined(self, me: Member) -> Iterator[None]:
        """Be an open window; afterwards `me.alone` says whether no other was open meanwhile."""
        with self._lock:
            if not self._open:
                self._first, self._shared = read(self.ctx, self.place), False
            self._open.append(me)
            if len(self._open) > 1:
                self._shared = True
                for member in self._open:
                    member.alone = False
        try:
            yield
        finally:
            with self._lock:
                self._open.remove(me)
                if not self._open and self._shared:
                    self._write()

    @contextmanager
    def window(
        self,
        task: Task,
        quiet_s: float = 0.0,
        operation: str | None = None,
        *,
        starts_worker: bool = False,
    ) -> Iterator[None]:
        """Book all calls of the scope, or of one operation of it, to `task`, and time the work.

        Closes when nothing is in flight and `quiet_s` have passed without a request; the interval
        itself is recorded as quiet, not as work. The row is written also when the body raises.
        With `starts_worker` the worker is born inside, and all that it used until the end counts.
        """
        ctx, place, me = self.ctx, self.place, Member()
        ctx.gateway.set_phase(place.scope, task.phase, task.bucket, task.unit, operation)
        first = last = read(ctx, place)
        if starts_worker:
            first = before_start(first)
        waited_s = 0.0
        try:
            with self.joined(me):
                try:
                    yield
                finally:
                    waited_s = wait_quiet(ctx, place, task.unit, quiet_s, operation)
                    last = read(ctx, place)
        finally:
            readings = (first, last) if me.alone else None
            span = (first.at_s, last.at_s)
            write_window(ctx, place, task, span, min(quiet_s, waited_s), readings)

    def _write(self) -> None:
        first, last = self._first, read(self.ctx, self.place)
        if first is not None:
            span = (first.at_s, last.at_s)
            task = Task(None, "unattributed", None)
            write_window(self.ctx, self.place, task, span, 0.0, (first, last))
