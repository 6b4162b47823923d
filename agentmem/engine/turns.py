"""One thing computes at a time: the engine's steps and an embedder's batches take turns."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from agentmem.engine.request import TrafficClass

CLASSES: tuple[TrafficClass, ...] = ("interactive", "background")
PATIENCE = 8
"""Interactive turns that may pass a waiting background one, one after the other."""


class Turns:
    """Turns to compute: interactive ones first, first come first served within a class.

    A background turn that `patience` interactive ones in a row have passed comes next, so that
    it is late, never lost. Who holds a turn decides how long it is.
    """

    def __init__(self, patience: int = PATIENCE) -> None:
        self._patience = patience
        self._lock = threading.Lock()
        self._taken = False
        self._passed = 0
        self._waiting: dict[TrafficClass, deque[threading.Event]] = {c: deque() for c in CLASSES}

    @contextmanager
    def turn(self, traffic_class: TrafficClass) -> Iterator[None]:
        """Wait for a turn, and hold it."""
        ready: threading.Event | None = None
        with self._lock:
            if self._taken:
                ready = threading.Event()
                self._waiting[traffic_class].append(ready)
            self._taken = True
        if ready is not None:
            self._wait(ready, traffic_class)
        try:
            yield
        finally:
            self._pass_on()

    def waiting(self, traffic_class: TrafficClass) -> int:
        """How many of a class wait."""
        return len(self._waiting[traffic_class])

    def _wait(self, ready: threading.Event, traffic_class: TrafficClass) -> None:
        try:
            ready.wait()
        except BaseException:
            with self._lock:
                given = ready.is_set()
                if not given:
                    self._waiting[traffic_class].remove(ready)
            if given:
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        with self._lock:
            first, last = (self._waiting[c] for c in CLASSES)
            if last and (not first or self._passed >= self._patience):
                self._passed = 0
                last.popleft().set()
            elif first:
                self._passed = self._passed + 1 if last else 0
                first.popleft().set()
            else:
                self._taken, self._passed = False, 0
