"""Keeps the local engine running: restarts one that died, new calls held meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from agentmem.errors import AgentMemError, EngineError
from agentmem.gateway.server import Gateway
from agentmem.meters.sampler import Sampler
from agentmem.runner.engine import LocalEngine

MAX_RESTARTS = 3
"""An engine that dies more often than this in one run is not started again."""


class Keeper:
    """Watches the engine's process from a thread of its own.

    What was in flight when the engine died is lost and shows as transport failures; whoever asks
    `restarts` before and after a piece of work knows whether to trust it.
    """

    def __init__(
        self,
        engine: LocalEngine,
        gateway: Gateway,
        sampler: Sampler,
        note: Callable[[str], None],
    ) -> None:
        self.restarts = 0
        self._engine, self._gateway, self._sampler, self._note = engine, gateway, sampler, note
        self._failure: str | None = None
        self._ready = threading.Event()
        self._ready.set()
        self._stopping = False
        sampler.watch("engine", engine.pid)
        self._thread = threading.Thread(target=self._watch, name="agentmem-keeper", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Return when the engine is up; EngineError when it is given up."""
        while self._failure is None and not (self._engine.alive() and self._ready.is_set()):
            time.sleep(0.05)
        if self._failure is not None:
            raise EngineError(f"{self._failure}; run the same command again to go on")

    def stop(self) -> None:
        """Stop watching; the engine itself is stopped by its owner."""
        self._stopping = True

    def _watch(self) -> None:
        while self._failure is None:
            self._engine.process.wait()
            if self._stopping:
                return
            self._ready.clear()
            self._gateway.hold()
            try:
                self._restart()
            except AgentMemError as err:
                self._failure = str(err)
            finally:
                self._gateway.release()
                self._ready.set()

    def _restart(self) -> None:
        self.restarts += 1
        last = self._engine.last_line()
        if self.restarts > MAX_RESTARTS:
            raise EngineError(f"the local engine died {self.restarts} times; last: {last}")
        self._note(f"the local engine died ({last}); starting it again")
        self._sampler.unwatch(self._engine.pid)
        self._engine.restart()
        self._sampler.watch("engine", self._engine.pid)
