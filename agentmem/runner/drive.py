"""One memory system on one history: open, construct unit by unit, then ask every question.

A unit or question that cannot be trusted (see `runner.trust`) takes the store back to its last
snapshot, and the work since is done again.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from agentmem import memory
from agentmem.records import Bucket, Footprint, Scope, Unit
from agentmem.runner import quality, rounds
from agentmem.runner.asking import Asker, Moment
from agentmem.runner.context import Context, Place
from agentmem.runner.overlap import Overlap, due
from agentmem.runner.readings import Task
from agentmem.runner.resume import Progressed, progressed, restore, safe
from agentmem.runner.rounds import Turn
from agentmem.runner.seat import ScopeLostError, Seat
from agentmem.runner.trust import LONGER, RollBackError, Trust
from agentmem.runner.windows import Windows
from agentmem.sandbox.client import Worker
from agentmem.sandbox.environment import Environment
from agentmem.sandbox.specs import SystemSpec
from agentmem.telemetry.journal import read_rows
from agentmem.workloads.base import History, Question


@dataclass(slots=True)
class Drive:
    """Drives one scope. `run()` returns True when every unit and question was dealt with."""

    ctx: Context
    spec: SystemSpec
    env: Environment
    history: History
    turn: Turn
    before: Progressed
    place: Place = field(init=False)
    seat: Seat = field(init=False)
    windows: Windows = field(init=False)
    trust: Trust = field(init=False)
    version: int | None = field(init=False, default=None)
    """Newest store version that the system told."""

    def run(self) -> bool:
        self.trust = Trust(self.ctx)
        while True:
            self._take_place()
            try:
                with quality.watched(self.ctx, self.place):
                    self._live()
            except ScopeLostError:
                return False
            except RollBackError as err:
                self._roll_back(err)
            else:
                return True
            finally:
                self.seat.close()
                self.ctx.gateway.close_scope(self.place.scope)

    def _take_place(self) -> None:
        ctx, turn = self.ctx, self.turn
        self.place = Place(turn.scope, turn.system, turn.history, self.before.epoch, turn.repeat)
        url = ctx.gateway.open_scope(
            Scope(
                turn.scope,
                turn.system,
                turn.history,
                turn.tenant(ctx.profile, ctx.run_id),
                self.spec.fingerprints,
                self.place.epoch,
                turn.repeat,
            )
        )
        self.windows = Windows(ctx, self.place)
        self.version = self.before.version
        self.seat = Seat(
            ctx,
            self.spec,
            self.env,
            self.history,
            self.place,
            url,
            turn.folder,
            overlaps=rounds.overlaps(ctx.profile, self.spec),
            native=rounds.answers_natively(ctx.profile, self.spec),
            patience=LONGER if self.before.patient else 1.0,
        )

    def _live(self) -> None:
        self._open()
        if self.seat.overlaps:
            left = self._questions_left()
            plan = due(self.history, left)
            with Overlap(self.ctx, self.place, self.seat, self.trust, self._asker(), plan) as lane:
                self._construct(lane)
                lane.finish(len(self.history.units), self.version)
        else:
            self._construct(None)
            self._question()
        self._memory()
        self._footprint("closed")
        self.place.mark(self.ctx, "done")

    def _roll_back(self, err: RollBackError) -> None:
        self.place.failure(self.ctx, "transport", err.unit, err.kind, err.message)
        self.seat.kill()
        self.ctx.wait_for_engine()
        self.before = progressed(read_rows(self.ctx.folder.journal), self.place.scope)

    # -- the three acts ----------------------------------------------------------------------

    def _open(self) -> None:
        store = self.ctx.folder.store(self.spec.name, self.turn.folder)
        if self.place.epoch:
            restore(store, self._snapshots(), self.before.snapshot)
            kept = self.before.units + self.before.queries
            self.place.mark(self.ctx, "resumed", self.before.snapshot, kept)
        else:
            self.place.mark(self.ctx, "open")
        with self.windows.window(Task(None, "setup", None), starts_worker=True):
            self.seat.start()
        if self.seat.overlaps:
            # From here on only what names its operation is attributed: nothing else could be.
            self.ctx.gateway.set_phase(self.place.scope, None)
        if self.before.snapshot is None:
            self._footprint("open")

    def _construct(self, lane: Overlap | None) -> None:
        ctx, units = self.ctx, self.history.units
        ctx.progress.begin(self.spec.name, "construction", len(units))
        done = set(self.before.units)
        for index, unit in enumerate(units):
            if unit.unit_id not in done:
                if unit.unit_id in self.trust.left_out:
                    self._write_unit(index, unit, None, None)
                else:
                    self._unit(index, unit)
                if (index + 1) % ctx.profile.run.snapshot_every == 0 and index + 1 < len(units):
                    self._snapshot(unit.unit_id)
            if lane is not None:
                lane.reached(index + 1, self.version)
            ctx.progress.step(self.spec.name, "construction", index + 1)
        if units and not self.before.constructed:
            self._flush(units[-1].unit_id)

    def _flush(self, last: str) -> None:
        ctx, place = self.ctx, self.place
        before = self.trust.begin(place, *self._operations)
        task = Task("construction", self._bucket, "flush")
        with self.windows.window(task, ctx.profile.run.quiet_s, self._operation):
            self.seat.call("flush", "flush", lambda w: w.flush())
        self.trust.check(place, self.seat, "flush", before)
        self._memory()
        self._snapshot(last)
        self._footprint("constructed")
        place.mark(ctx, "constructed")

    def _unit(self, index: int, unit: memory.Unit) -> None:
        ctx, timeout = self.ctx, self.ctx.profile.limits.unit_timeout_s * self.seat.patience
        before = self.trust.begin(self.place, *self._operations)
        start = ctx.clock()
        task = Task("construction", self._bucket, unit.unit_id)
        with self.windows.window(task, operation=self._operation):
            self.seat.set_clock(index)
            stored = self.seat.call("construct", unit.unit_id, lambda w: w.construct(unit, timeout))
            took = ctx.clock() - start
        self.trust.check(self.place, self.seat, unit.unit_id, before)
        self._write_unit(index, unit, stored, took)

    def _write_unit(
        self, index: int, unit: memory.Unit, stored: memory.Stored | None, took_s: float | None
    ) -> None:
        if not self.turn.measured:
            return
        ctx, done = self.ctx, stored or memory.Stored(lost=1)
        if done.store_version is not None:
            self.version = done.store_version
        ctx.write(self._unit_row(index, unit, stored, done, took_s))
        ctx.journal.sync()
        if done.lost and stored:
            message = f"{done.lost} lost without an error{': ' + done.note if done.note else ''}"
            self.place.failure(ctx, "construct", unit.unit_id, "silent_loss", message)

    def _unit_row(
        self,
        index: int,
        unit: memory.Unit,
        stored: memory.Stored | None,
        done: memory.Stored,
        took_s: float | None,
    ) -> Unit:
        return Unit(
            scope=self.place.scope,
            system=self.spec.name,
            history=self.history.history,
            unit=unit.unit_id,
            index=index,
            status="ok" if stored else "failed",
            construct_s=took_s if stored else None,
            source_chars=len(unit.text),
            source_tokens=self.ctx.room.count(unit.text),
            added=done.added,
            updated=done.updated,
            deleted=done.deleted,
            lost=done.lost,
            store_version=done.store_version,
            visible_s=done.visible_at,
            note=done.note,
            epoch=self.place.epoch,
            repeat=self.place.repeat,
        )

    def _question(self) -> None:
        ctx, asked = self.ctx, self.history.questions
        ctx.progress.begin(self.spec.name, "questions", len(asked))
        left = {q.question_id for _, q in self._questions_left()}
        asker, moment = self._asker(), Moment(len(self.history.units), self.version)
        for index, question in enumerate(asked):
            if question.question_id in left:
                before = self.trust.begin(self.place)
                self.seat.set_clock(len(self.history.units) + index)
                row = asker.ask(question, moment)
                self.trust.check(self.place, self.seat, question.question_id, before)
                if self.turn.measured:
                    ctx.write(row)
                    ctx.journal.sync()
            ctx.progress.step(self.spec.name, "questions", index + 1)

    # -- around them -------------------------------------------------------------------------

    @property
    def _bucket(self) -> Bucket:
        return "measured" if self.turn.measured else "setup"

    @property
    def _operation(self) -> str | None:
        return "construct" if self.seat.overlaps else None

    @property
    def _operations(self) -> tuple[str, ...]:
        return ("construct",) if self.seat.overlaps else ()

    def _asker(self) -> Asker:
        left_out = self.trust.left_out
        return Asker(self.ctx, self.place, self.seat, self.windows, self._bucket, left_out)

    def _questions_left(self) -> list[tuple[int, Question]]:
        done = set(self.before.queries)
        return [(i, q) for i, q in enumerate(self.history.questions) if q.question_id not in done]

    def _snapshots(self) -> Path:
        return self.ctx.folder.snapshots(self.spec.name, self.turn.folder)

    def _snapshot(self, unit: str) -> None:
        """Copy the flushed store; only the newest snapshot is kept."""
        if not self.turn.measured:
            return
        folder = self._snapshots()
        part, final = folder / f"{safe(unit)}.part", folder / safe(unit)
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(final, ignore_errors=True)
        if self.seat.call("snapshot", unit, lambda w: _copy(w, part)) is None:
            self.trust.check_worker(self.place, self.seat, unit)
            return
        part.rename(final)
        self.place.mark(self.ctx, "snapshot", unit)
        for old in folder.iterdir():
            if old != final:
                shutil.rmtree(old, ignore_errors=True)

    def _footprint(self, at: Literal["open", "constructed", "closed"]) -> None:
        if not self.turn.measured:
            return
        sizes = self.seat.call("footprint", None, lambda w: w.footprint()) or {}
        p = self.place
        for store, size in sizes.items():
            row = Footprint(p.scope, p.system, p.history, store, size, at, p.epoch, p.repeat)
            self.ctx.write(row)

    def _memory(self) -> None:
        """Proportional memory of worker and engine, read at phase ends only: it is slow to read."""
        for role in (f"worker:{self.spec.name}", "engine"):
            self.ctx.sampler.mark(role)


def _copy(worker: Worker, to: Path) -> bool:
    worker.flush()
    worker.snapshot(to)
    return True
