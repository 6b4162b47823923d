"""A memory system's seat at the table: its worker, started, called, restarted and put away."""

from __future__ import annotations

import contextlib
import threading
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from agentmem import memory
from agentmem.runner.context import Context, Place
from agentmem.sandbox.client import Lane, Worker, parse_at
from agentmem.sandbox.environment import Environment
from agentmem.sandbox.failure import WorkerFailure
from agentmem.sandbox.launch import CLOCK_START_S, WorkerOptions
from agentmem.sandbox.specs import SystemSpec
from agentmem.workloads.base import History

T = TypeVar("T")
MAX_RESTARTS = 3
"""A worker that dies more often than this in one scope ends that scope."""
STEP_S = 60.0
"""What the frozen clock moves by per unit or question that has no time stamp."""


class ScopeLostError(Exception):
    """The scope cannot go on; its failure is already on record."""


@dataclass(slots=True)
class Seat:
    """Holds at most one worker of one scope."""

    ctx: Context
    spec: SystemSpec
    env: Environment
    history: History
    place: Place
    url: str
    folder: str
    """Name of the history's folder among stores and logs."""
    overlaps: bool = False
    """The worker may be given a question while it constructs."""
    native: bool = False
    """The system answers in its own loop."""
    patience: float = 1.0
    """Factor on the time-outs of model calls."""
    worker: Worker | None = field(init=False, default=None)
    restarts: int = field(init=False, default=0)
    raised: dict[str | None, WorkerFailure] = field(init=False, default_factory=dict)
    """Last failure by unit or question."""
    lost: bool = field(init=False, default=False)
    """Its worker died or hung, and that was taken note of."""
    _lock: threading.RLock = field(init=False, default_factory=threading.RLock)

    @property
    def request_timeout_s(self) -> float:
        """What the system is told to wait for one model call."""
        return self.ctx.profile.limits.request_timeout_s * self.patience

    def start(self) -> None:
        """Spawn the worker and open its store; ScopeLostError when it cannot be opened."""
        ctx, name = self.ctx, self.spec.name
        run, limits = ctx.profile.run, ctx.profile.limits
        self.worker = worker = Worker(
            self.spec,
            self.env,
            ctx.folder.store(name, self.folder),
            ctx.folder.logs(name, self.folder),
            allowed_ports=(urllib.parse.urlsplit(self.url).port or 0,),
            options=WorkerOptions(
                run.frozen_clock,
                run.seed,
                timeout_scale=limits.timeout_scale,
                overlap=self.overlaps,
            ),
        )
        served = ctx.facts
        endpoints = memory.Endpoints(
            chat_url=self.url,
            chat_model=served.model,
            embed_url=self.url,
            embed_model=served.embed_model,
            embed_dims=served.embed_dims,
            window_tokens=served.window_tokens,
        )
        caps = memory.Limits(
            limits.max_output_tokens,
            self.request_timeout_s,
            limits.max_tool_loops,
            dict(ctx.profile.options.get(name, {})),
        )
        try:
            worker.start()
            if worker.pid is not None:
                ctx.sampler.watch(f"worker:{name}", worker.pid)
            worker.open(endpoints, caps)
        except WorkerFailure as err:
            self.record("open", None, err)
            raise ScopeLostError from None

    def call(self, where: str, unit: str | None, verb: Callable[[Worker], T]) -> T | None:
        """Run one verb; a failure is recorded, a dead worker restarted; None when it failed.

        May be called for a question while another thread constructs; a worker that dies takes
        both with it and is restarted once.
        """
        with self._lock:  # held while a dead one is restarted
            worker = self.worker
        if worker is None:
            raise ScopeLostError
        self.raised.pop(unit, None)
        try:
            return verb(worker)
        except WorkerFailure as err:
            self.raised[unit] = err
            self.record(where, unit, err)
            if err.kind != "raised":
                self._restart(worker)
            return None

    def set_clock(self, step: int, lane: Lane = "write", later_s: float = 0.0) -> None:
        """Set the frozen clock by the work done, not the calls made, so that a resume repeats it.

        `step` counts units, then questions. A unit with a time stamp sets its own time; all else
        lies minutes after the last stamp.
        """
        stamps = [parse_at(u.at) for u in self.history.units[: step + 1]]
        known = [s for s in stamps if s is not None]
        with self._lock:
            worker = self.worker
        if worker is not None:
            now_s = (known[-1] if known else CLOCK_START_S) + STEP_S * step + later_s
            worker.set_clock(now_s, lane)

    def record(self, where: str, unit: str | None, err: WorkerFailure) -> None:
        self.place.failure(self.ctx, where, unit, err.kind, err.message, err.last_output)

    def close(self) -> None:
        """Close the store and end the worker, whether closing works or not."""
        if self.worker is not None:
            with contextlib.suppress(WorkerFailure):
                self.worker.close()
        self.kill()

    def kill(self) -> None:
        """End the worker at once; no other takes its place."""
        with self._lock:
            worker, self.worker = self.worker, None
        if worker is not None:
            self._end(worker)

    def _end(self, worker: Worker) -> None:
        if worker.pid is not None:
            self.ctx.sampler.unwatch(worker.pid)
        worker.kill()

    def _restart(self, dead: Worker) -> None:
        with self._lock:
            if self.worker is not dead:
                return  # the other thread was faster, or the seat is being cleared
            self.restarts += 1
            self._end(dead)
            self.worker = None
            if self.restarts > MAX_RESTARTS:
                message = f"its worker failed {self.restarts} times"
                self.place.failure(self.ctx, "worker", None, "gave_up", message)
                raise ScopeLostError
            self.start()
