"""Questions asked from a second thread while a system constructs.

A question comes up once the unit that holds the last of its evidence was constructed, so that it
could be answered then; one without evidence comes up somewhere along the way. Which unit that is
follows from the workload alone. How far the construction is by then is up to the system.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType

from agentmem.runner.asking import Asker, Moment
from agentmem.runner.context import Context, Place
from agentmem.runner.seat import Seat
from agentmem.runner.trust import Trust
from agentmem.workloads.base import History, Question


@dataclass(frozen=True, slots=True)
class Due:
    """A question, its place in the history's list, and how many units come before it."""

    units: int
    index: int
    question: Question


def due(history: History, left: Sequence[tuple[int, Question]]) -> list[Due]:
    """Questions in the order in which they come up."""
    holds = {t.source_id: i for i, unit in enumerate(history.units) for t in unit.turns}
    units, total = len(history.units), len(history.questions)
    plan = []
    for index, question in left:
        inside = [holds[e] for e in question.evidence if e in holds]
        spread = (index + 1) * units // (total + 1)
        plan.append(Due(max(inside) + 1 if inside else spread, index, question))
    return sorted(plan, key=lambda d: (d.units, d.index))


@dataclass(slots=True)
class Overlap:
    """The questions' thread. What goes wrong in it is raised in the thread that constructs."""

    ctx: Context
    place: Place
    seat: Seat
    trust: Trust
    asker: Asker
    plan: list[Due]
    _moment: Moment = field(init=False, default_factory=lambda: Moment(0, None))
    _stopped: bool = field(init=False, default=False)
    _changed: threading.Condition = field(init=False, default_factory=threading.Condition)
    _pool: ThreadPoolExecutor = field(init=False)
    _done: Future[None] = field(init=False)

    def __enter__(self) -> Overlap:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="questions")
        self._done = self._pool.submit(self._ask_all)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if kind is not None:
            with self._changed:
                self._stopped = True
                self._changed.notify_all()
            self.seat.kill()  # a question in progress ends here, unrecorded
        self._pool.shutdown(wait=True)

    def reached(self, units: int, version: int | None) -> None:
        """So many units are constructed. Raises what went wrong with a question."""
        with self._changed:
            self._moment = Moment(units, version)
            self._changed.notify_all()
        if self._done.done():
            self._done.result()

    def finish(self, units: int, version: int | None) -> None:
        """Wait until every question was asked."""
        name, total = self.place.system, len(self.asker.seat.history.questions)
        self.ctx.progress.begin(name, "questions", total)
        self.reached(units, version)
        self._done.result()
        self.ctx.progress.step(name, "questions", total)

    def _ask_all(self) -> None:
        for item in self.plan:
            moment = self._wait_for(item.units)
            if moment is None:
                return
            before = self.trust.begin(self.place, "retrieve", "answer", "generate")
            self.seat.set_clock(max(item.units - 1, 0), "read", 1.0 + item.index)
            row = self.asker.ask(item.question, moment)
            if self._stopped:
                return
            self.trust.check(self.place, self.seat, item.question.question_id, before)
            if self.asker.bucket == "measured":
                self.ctx.write(row)
                self.ctx.journal.sync()

    def _wait_for(self, units: int) -> Moment | None:
        """What is constructed by the time that so many units are; None when all is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._moment.units >= units)
            return None if self._stopped else self._moment
