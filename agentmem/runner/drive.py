"""One memory system on one history: open, construct unit by unit, then ask every question."""

from __future__ import annotations

import contextlib
import shutil
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from agentmem import memory
from agentmem.errors import EngineError
from agentmem.records import Footprint, Query, Scope, Unit
from agentmem.runner import questions
from agentmem.runner.context import Context, Place, window
from agentmem.runner.resume import Progressed, restore, safe
from agentmem.sandbox.client import Worker, parse_at
from agentmem.sandbox.environment import Environment
from agentmem.sandbox.failure import WorkerFailure
from agentmem.sandbox.launch import CLOCK_START_S, WorkerOptions
from agentmem.sandbox.specs import SystemSpec
from agentmem.workloads.base import History, Question

T = TypeVar("T")
MAX_RESTARTS = 3
"""A worker that dies more often than this in one scope ends that scope."""


STEP_S = 60.0
"""What the frozen clock moves by per unit or question that has no time stamp."""


class ScopeLostError(Exception):
    """The scope cannot go on; its failure is already on record."""


@dataclass(slots=True)
class Drive:
    """Drives one scope. `run()` returns True when every unit and question was dealt with."""

    ctx: Context
    spec: SystemSpec
    env: Environment
    history: History
    before: Progressed
    place: Place = field(init=False)
    url: str = field(init=False, default="")
    worker: Worker | None = field(init=False, default=None)
    restarts: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        scope = scope_id(self.spec.name, self.history.history)
        self.place = Place(scope, self.spec.name, self.history.history, self.before.epoch)

    def run(self) -> bool:
        ctx = self.ctx
        self.url = ctx.gateway.open_scope(
            Scope(
                self.place.scope,
                self.spec.name,
                self.history.history,
                f"{ctx.run_id}:{self.spec.name}",
                tuple(self.spec.fingerprints),
                self.place.epoch,
            )
        )
        try:
            self._open()
            self._construct()
            self._question()
            self._memory()
            self._footprint("closed")
            self.place.mark(ctx, "done")
        except ScopeLostError:
            return False
        finally:
            self._close()
            ctx.gateway.close_scope(self.place.scope)
        return True

    # -- verbs -------------------------------------------------------------------------------

    def _open(self) -> None:
        store = self.ctx.folder.store(self.spec.name, self.history.history)
        if self.place.epoch:
            restore(store, self._snapshots(), self.before.snapshot)
            kept = self.before.units + self.before.queries
            self.place.mark(self.ctx, "resumed", self.before.snapshot, kept)
        else:
            self.place.mark(self.ctx, "open")
        with window(self.ctx, self.place, None, "setup", None, 0.0):
            self._start()
        if not self.place.epoch:
            self._footprint("open")

    def _start(self) -> None:
        ctx, name = self.ctx, self.spec.name
        limits = ctx.profile.limits
        self.worker = Worker(
            self.spec,
            self.env,
            ctx.folder.store(name, self.history.history),
            ctx.folder.logs(name, self.history.history),
            allowed_ports=(urllib.parse.urlsplit(self.url).port or 0,),
            options=WorkerOptions(
                ctx.profile.run.frozen_clock,
                ctx.profile.run.seed,
                timeout_scale=limits.timeout_scale,
            ),
        )
        endpoints = memory.Endpoints(
            self.url,
            ctx.facts.model,
            self.url,
            ctx.facts.embed_model,
            ctx.facts.embed_dims,
            ctx.facts.window_tokens,
        )
        options = dict(ctx.profile.options.get(name, {}))
        caps = memory.Limits(
            limits.max_output_tokens, limits.request_timeout_s, limits.max_tool_loops, options
        )
        worker = self.worker
        try:
            worker.start()
            if worker.pid is not None:
                ctx.sampler.watch(f"worker:{name}", worker.pid)
            worker.open(endpoints, caps)
        except WorkerFailure as err:
            self._record("open", None, err)
            raise ScopeLostError from None

    def _construct(self) -> None:
        ctx, units = self.ctx, self.history.units
        ctx.progress.begin(self.spec.name, "construction", len(units))
        done = set(self.before.units)
        for index, unit in enumerate(units):
            if unit.unit_id not in done:
                self._unit(index, unit)
                if (index + 1) % ctx.profile.run.snapshot_every == 0 and index + 1 < len(units):
                    self._snapshot(unit.unit_id)
            ctx.progress.step(self.spec.name, "construction", index + 1)
        if units and not self.before.constructed:
            with window(
                ctx, self.place, "construction", "measured", "flush", ctx.profile.run.quiet_s
            ):
                self._call("flush", "flush", lambda w: w.flush())
            self._memory()
            self._snapshot(units[-1].unit_id)
            self._footprint("constructed")
            self.place.mark(ctx, "constructed")

    def _unit(self, index: int, unit: memory.Unit) -> None:
        ctx, timeout = self.ctx, self.ctx.profile.limits.unit_timeout_s
        start = ctx.clock()
        with window(ctx, self.place, "construction", "measured", unit.unit_id, 0.0):
            self._set_clock(index)
            stored = self._call("construct", unit.unit_id, lambda w: w.construct(unit, timeout))
            took = ctx.clock() - start
        done = stored or memory.Stored(lost=1)
        ctx.write(
            Unit(
                self.place.scope,
                self.spec.name,
                self.history.history,
                unit.unit_id,
                index,
                "ok" if stored else "failed",
                took if stored else None,
                len(unit.text),
                ctx.room.count(unit.text),
                done.added,
                done.updated,
                done.deleted,
                done.lost,
                done.store_version,
                done.visible_at,
                done.note,
                self.place.epoch,
            )
        )
        ctx.journal.sync()
        if done.lost and stored:
            self.place.failure(
                ctx,
                "construct",
                unit.unit_id,
                "silent_loss",
                f"{done.lost} lost without an error{': ' + done.note if done.note else ''}",
            )

    def _question(self) -> None:
        ctx, asked = self.ctx, self.history.questions
        ctx.progress.begin(self.spec.name, "questions", len(asked))
        done = set(self.before.queries)
        for index, question in enumerate(asked):
            if question.question_id not in done:
                ctx.write(self._ask(index, question))
                ctx.journal.sync()
            ctx.progress.step(self.spec.name, "questions", index + 1)

    def _ask(self, index: int, question: Question) -> Query:
        ctx, qid = self.ctx, question.question_id
        timeout = ctx.profile.limits.query_timeout_s
        start = ctx.clock()
        self._set_clock(len(self.history.units) + index)
        with window(ctx, self.place, "retrieval", "measured", qid, 0.0):
            found = self._call(
                "retrieve",
                qid,
                lambda w: w.retrieve(
                    self.history.user, question.text, ctx.profile.answer.k, timeout
                ),
            )
            took = ctx.clock() - start
        if found is None:
            return questions.row(ctx, self.place, question, None, None, None, None)
        return questions.answer(
            ctx, self.place, self.url, question, found, took, self.spec.passthrough
        )

    # -- around the verbs --------------------------------------------------------------------

    def _call(self, where: str, unit: str | None, verb: Callable[[Worker], T]) -> T | None:
        """Run one verb; a failure is recorded, a dead worker restarted; None when it failed."""
        if self.worker is None:
            raise ScopeLostError
        try:
            return verb(self.worker)
        except WorkerFailure as err:
            self._record(where, unit, err)
            self._check_engine()
            if err.kind in ("died", "timeout", "protocol"):
                self._restart()
            return None

    def _set_clock(self, step: int) -> None:
        """The frozen clock follows the work done, not the calls made, so that a resume repeats it.

        A unit with a time stamp sets its own time; all else lies minutes after the last stamp.
        """
        stamps = [parse_at(u.at) for u in self.history.units[: step + 1]]
        known = [s for s in stamps if s is not None]
        if self.worker is not None:
            self.worker.clock_s = (known[-1] if known else CLOCK_START_S) + STEP_S * step

    def _restart(self) -> None:
        self.restarts += 1
        self._kill()
        if self.restarts > MAX_RESTARTS:
            self.place.failure(
                self.ctx, "worker", None, "gave_up", f"worker failed {self.restarts} times"
            )
            raise ScopeLostError
        self._start()

    def _check_engine(self) -> None:
        engine = self.ctx.engine
        if engine is not None and not engine.alive():
            raise EngineError(f"the local engine died: {engine.last_line()}; run again to resume")

    def _record(self, where: str, unit: str | None, err: WorkerFailure) -> None:
        self.place.failure(self.ctx, where, unit, err.kind, err.message, err.last_output)

    def _snapshots(self) -> Path:
        return self.ctx.folder.snapshots(self.spec.name, self.history.history)

    def _snapshot(self, unit: str) -> None:
        """Copy the flushed store; only the newest snapshot is kept."""
        folder = self._snapshots()
        part, final = folder / f"{safe(unit)}.part", folder / safe(unit)
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(final, ignore_errors=True)
        if self._call("snapshot", unit, lambda w: _copy(w, part)) is None:
            return
        part.rename(final)
        self.place.mark(self.ctx, "snapshot", unit)
        for old in folder.iterdir():
            if old != final:
                shutil.rmtree(old, ignore_errors=True)

    def _footprint(self, at: Literal["open", "constructed", "closed"]) -> None:
        sizes = self._call("footprint", None, lambda w: w.footprint()) or {}
        for store, size in sizes.items():
            self.ctx.write(
                Footprint(
                    self.place.scope,
                    self.spec.name,
                    self.history.history,
                    store,
                    size,
                    at,
                    self.place.epoch,
                )
            )

    def _memory(self) -> None:
        """Proportional memory of worker and engine, read at phase ends only: it is slow to read."""
        for role in (f"worker:{self.spec.name}", "engine"):
            self.ctx.sampler.mark(role)

    def _close(self) -> None:
        if self.worker is not None:
            with contextlib.suppress(WorkerFailure):
                self.worker.close()
        self._kill()

    def _kill(self) -> None:
        if self.worker is not None:
            if self.worker.pid is not None:
                self.ctx.sampler.unwatch(self.worker.pid)
            self.worker.kill()
            self.worker = None


def _copy(worker: Worker, to: Path) -> bool:
    worker.flush()
    worker.snapshot(to)
    return True


def scope_id(system: str, history: str) -> str:
    """The scope's name in the gateway URL."""
    return f"{safe(system)}.{safe(history)}"
