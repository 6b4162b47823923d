"""One question put to one system, in whichever lane it answers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from agentmem.memory import Answer, Retrieved
from agentmem.records import Bucket, Query
from agentmem.runner import questions
from agentmem.runner.answering import native
from agentmem.runner.context import Context, Place
from agentmem.runner.readings import Task
from agentmem.runner.seat import Seat
from agentmem.runner.windows import Windows
from agentmem.workloads.base import Question


@dataclass(frozen=True, slots=True)
class Moment:
    """How far the construction was when a question was asked."""

    units: int
    """Units constructed."""
    version: int | None
    """Newest store version known then."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks the questions of one scope. The seat holds the worker."""

    ctx: Context
    place: Place
    seat: Seat
    windows: Windows
    bucket: Bucket
    left_out: Collection[str] = ()
    """Questions that no worker survived."""

    def ask(self, question: Question, moment: Moment) -> Query:
        """The finished row; a failed verb or call is a failed question."""
        if question.question_id in self.left_out:
            return questions.row(self.ctx, self.place, question, when=self._when(moment, None))
        if self.seat.native:
            return self._native(question, moment)
        return self._harness(question, moment)

    def _harness(self, question: Question, moment: Moment) -> Query:
        ctx, seat, qid = self.ctx, self.seat, question.question_id
        limit_s = ctx.profile.limits.query_timeout_s * seat.patience
        user, k = seat.history.user, ctx.profile.answer.k
        start = ctx.clock()
        with self.windows.window(
            Task("retrieval", self.bucket, qid), operation=self._operation("retrieve")
        ):
            found = seat.call(
                "retrieve", qid, lambda w: w.retrieve(user, question.text, k, limit_s)
            )
            took = ctx.clock() - start
        when = self._when(moment, found)
        if found is None:
            return questions.row(ctx, self.place, question, when=when)
        prompt = questions.prompt(ctx, question, found, seat.spec.passthrough)
        operation = self._operation("generate")
        url = ctx.gateway.url_of(self.place.scope, operation)
        with self.windows.window(Task("generation", self.bucket, qid), operation=operation):
            text, generation_s = questions.generate(ctx, self.place, url, question, prompt, limit_s)
        times = (took, generation_s)
        return questions.row(ctx, self.place, question, prompt, text, times, when=when)

    def _native(self, question: Question, moment: Moment) -> Query:
        done = native(
            self.ctx,
            self.place,
            self.seat,
            question,
            self.windows,
            bucket=self.bucket,
            operation=self._operation("answer"),
        )
        answer, when = done.answer, self._when(moment, done.answer)
        return questions.row(
            self.ctx,
            self.place,
            question,
            entries=answer.entries if answer else (),
            text=answer.text if answer else None,
            times=(done.retrieval_s, done.generation_s),
            when=when,
            native=True,
        )

    def _operation(self, verb: str) -> str | None:
        return verb if self.seat.overlaps else None

    def _when(self, moment: Moment, found: Retrieved | Answer | None) -> questions.When:
        """Staleness: how many versions newer the store was when the question was asked."""
        read = found.version_read if found is not None else None
        known = moment.version is not None and read is not None
        behind = max(moment.version - read, 0) if known else None  # type: ignore[operator]
        return questions.When(read, behind, moment.units)
