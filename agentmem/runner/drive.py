"""One memory system on one history: open, construct unit by unit, then ask every question.

A unit or question during which a call to the model server broke is not trusted, because upstreams
swallow such failures: the store goes back to its last snapshot and the work since is done again.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from agentmem import memory
from agentmem.records import Footprint, Query, Scope, Unit
from agentmem.runner import questions
from agentmem.runner.context import Context, Place, window
from agentmem.runner.resume import Progressed, progressed, restore, safe
from agentmem.runner.seat import ScopeLostError, Seat
from agentmem.sandbox.client import Worker
from agentmem.sandbox.environment import Environment
from agentmem.sandbox.specs import SystemSpec
from agentmem.telemetry.journal import read_rows
from agentmem.workloads.base import History, Question

MAX_ROLLBACKS = 2
"""Per unit or question; after that it stands as it is, with its failures on record."""


class RollBackError(Exception):
    """The work on one unit or question cannot be trusted."""

    def __init__(self, unit: str) -> None:
        super().__init__(unit)
        self.unit = unit


@dataclass(slots=True)
class Drive:
    """Drives one scope. `run()` returns True when every unit and question was dealt with."""

    ctx: Context
    spec: SystemSpec
    env: Environment
    history: History
    before: Progressed
    place: Place = field(init=False)
    seat: Seat = field(init=False)
    rollbacks: dict[str, int] = field(init=False, default_factory=dict)

    def run(self) -> bool:
        while True:
            scope = scope_id(self.spec.name, self.history.history)
            name, history = self.spec.name, self.history.history
            self.place = Place(scope, name, history, self.before.epoch)
            tenant = f"{self.ctx.run_id}:{name}"
            url = self.ctx.gateway.open_scope(
                Scope(scope, name, history, tenant, self.spec.fingerprints, self.place.epoch)
            )
            self.seat = Seat(self.ctx, self.spec, self.env, self.history, self.place, url)
            try:
                self._live()
            except ScopeLostError:
                return False
            except RollBackError as err:
                self._roll_back(err.unit)
            else:
                return True
            finally:
                self.seat.close()
                self.ctx.gateway.close_scope(scope)

    def _live(self) -> None:
        self._open()
        self._construct()
        self._question()
        self._memory()
        self._footprint("closed")
        self.place.mark(self.ctx, "done")

    def _roll_back(self, unit: str) -> None:
        self.rollbacks[unit] = self.rollbacks.get(unit, 0) + 1
        message = "a call to the model server broke; rolled back and done again"
        self.place.failure(self.ctx, "transport", unit, "rolled_back", message)
        self.seat.kill()
        self.ctx.wait_for_engine()
        self.before = progressed(read_rows(self.ctx.folder.journal), self.place.scope)

    # -- the three acts ----------------------------------------------------------------------

    def _open(self) -> None:
        store = self.ctx.folder.store(self.spec.name, self.history.history)
        if self.place.epoch:
            restore(store, self._snapshots(), self.before.snapshot)
            kept = self.before.units + self.before.queries
            self.place.mark(self.ctx, "resumed", self.before.snapshot, kept)
        else:
            self.place.mark(self.ctx, "open")
        with window(self.ctx, self.place, None, "setup", None, 0.0):
            self.seat.start()
        if self.before.snapshot is None:
            self._footprint("open")

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
            trouble = ctx.trouble(self.place.scope)
            quiet_s = ctx.profile.run.quiet_s
            with window(ctx, self.place, "construction", "measured", "flush", quiet_s):
                self.seat.call("flush", "flush", lambda w: w.flush())
            self._trust("flush", trouble)
            self._memory()
            self._snapshot(units[-1].unit_id)
            self._footprint("constructed")
            self.place.mark(ctx, "constructed")

    def _unit(self, index: int, unit: memory.Unit) -> None:
        ctx, timeout = self.ctx, self.ctx.profile.limits.unit_timeout_s
        start, trouble = ctx.clock(), ctx.trouble(self.place.scope)
        with window(ctx, self.place, "construction", "measured", unit.unit_id, 0.0):
            self.seat.set_clock(index)
            stored = self.seat.call("construct", unit.unit_id, lambda w: w.construct(unit, timeout))
            took = ctx.clock() - start
        self._trust(unit.unit_id, trouble)
        done = stored or memory.Stored(lost=1)
        ctx.write(
            Unit(
                scope=self.place.scope,
                system=self.spec.name,
                history=self.history.history,
                unit=unit.unit_id,
                index=index,
                status="ok" if stored else "failed",
                construct_s=took if stored else None,
                source_chars=len(unit.text),
                source_tokens=ctx.room.count(unit.text),
                added=done.added,
                updated=done.updated,
                deleted=done.deleted,
                lost=done.lost,
                store_version=done.store_version,
                visible_s=done.visible_at,
                note=done.note,
                epoch=self.place.epoch,
                source_bytes=len(unit.text.encode("utf-8", "surrogatepass")),
            )
        )
        ctx.journal.sync()
        if done.lost and stored:
            message = f"{done.lost} lost without an error{': ' + done.note if done.note else ''}"
            self.place.failure(ctx, "construct", unit.unit_id, "silent_loss", message)

    def _question(self) -> None:
        ctx, asked = self.ctx, self.history.questions
        ctx.progress.begin(self.spec.name, "questions", len(asked))
        done = set(self.before.queries)
        for index, question in enumerate(asked):
            if question.question_id not in done:
                trouble = ctx.trouble(self.place.scope)
                row = self._ask(index, question)
                self._trust(question.question_id, trouble)
                ctx.write(row)
                ctx.journal.sync()
            ctx.progress.step(self.spec.name, "questions", index + 1)

    def _ask(self, index: int, question: Question) -> Query:
        ctx, qid, user = self.ctx, question.question_id, self.history.user
        k, timeout = ctx.profile.answer.k, ctx.profile.limits.query_timeout_s
        start = ctx.clock()
        self.seat.set_clock(len(self.history.units) + index)
        with window(ctx, self.place, "retrieval", "measured", qid, 0.0):
            found = self.seat.call(
                "retrieve", qid, lambda w: w.retrieve(user, question.text, k, timeout)
            )
            took = ctx.clock() - start
        if found is None:
            return questions.row(ctx, self.place, question, None, None, None, None)
        return questions.answer(
            ctx, self.place, self.seat.url, question, found, took, self.spec.passthrough
        )

    # -- around them -------------------------------------------------------------------------

    def _trust(self, unit: str, before: int) -> None:
        """RollBackError when calls broke since `before`, unless this was tried often enough."""
        if self.ctx.trouble(self.place.scope) > before:
            if self.rollbacks.get(unit, 0) < MAX_ROLLBACKS:
                raise RollBackError(unit)
            self.ctx.wait_for_engine()

    def _snapshots(self) -> Path:
        return self.ctx.folder.snapshots(self.spec.name, self.history.history)

    def _snapshot(self, unit: str) -> None:
        """Copy the flushed store; only the newest snapshot is kept."""
        folder = self._snapshots()
        part, final = folder / f"{safe(unit)}.part", folder / safe(unit)
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(final, ignore_errors=True)
        if self.seat.call("snapshot", unit, lambda w: _copy(w, part)) is None:
            return
        part.rename(final)
        self.place.mark(self.ctx, "snapshot", unit)
        for old in folder.iterdir():
            if old != final:
                shutil.rmtree(old, ignore_errors=True)

    def _footprint(self, at: Literal["open", "constructed", "closed"]) -> None:
        sizes = self.seat.call("footprint", None, lambda w: w.footprint()) or {}
        place = self.place
        for store, size in sizes.items():
            self.ctx.write(
                Footprint(place.scope, place.system, place.history, store, size, at, place.epoch)
            )

    def _memory(self) -> None:
        """Proportional memory of worker and engine, read at phase ends only: it is slow to read."""
        for role in (f"worker:{self.spec.name}", "engine"):
            self.ctx.sampler.mark(role)


def _copy(worker: Worker, to: Path) -> bool:
    worker.flush()
    worker.snapshot(to)
    return True


def scope_id(system: str, history: str) -> str:
    """The scope's name in the gateway URL."""
    return f"{safe(system)}.{safe(history)}"
