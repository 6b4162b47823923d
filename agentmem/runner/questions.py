"""Ask the reader one question from what was retrieved; also the two reference rows."""

from __future__ import annotations

from dataclasses import dataclass

from agentmem.errors import EngineError
from agentmem.memory import Entry, Retrieved
from agentmem.records import Query, Scope
from agentmem.runner.context import Context, Place
from agentmem.runner.reader import Prompt, ask, assemble
from agentmem.runner.readings import Task
from agentmem.runner.windows import Windows
from agentmem.workloads.base import History, Question

NO_MEMORY, ORACLE = "no_memory", "oracle_evidence"
"""Reference rows: the reader alone, and the reader given the evidence itself."""
TRIES = 3


@dataclass(frozen=True, slots=True)
class When:
    """Where in the life of the store a question was asked."""

    version_read: int | None = None
    versions_behind: int | None = None
    units_before: int | None = None


def prompt(ctx: Context, question: Question, found: Retrieved, passthrough: bool) -> Prompt:
    return assemble(question.text, found.entries, ctx.room, passthrough)


def generate(
    ctx: Context, place: Place, url: str, question: Question, asked: Prompt, limit_s: float
) -> tuple[str | None, float]:
    """The reader's answer and its seconds; None when the call failed, which is put on record."""
    text, start = None, ctx.clock()
    try:
        text = ask(url, ctx.facts.model, asked, ctx.profile.answer.max_tokens, limit_s)
    except EngineError as err:
        place.failure(ctx, "generate", question.question_id, "upstream_error", str(err))
    return text, ctx.clock() - start


def row(
    ctx: Context,
    place: Place,
    question: Question,
    asked: Prompt | None = None,
    text: str | None = None,
    times: tuple[float | None, float | None] = (None, None),
    *,
    entries: tuple[Entry, ...] = (),
    when: When = When(),
    native: bool = False,
) -> Query:
    """The question's record, whatever became of it. `entries` are those of a native answer."""
    used = asked.used if asked else entries
    ids = [i for e in used if e.source_ids is not None for i in e.source_ids]
    told = any(e.source_ids is not None for e in used)
    spec = ctx.profile.answer
    wanted = 0 if native else spec.k_overflow if asked and asked.overflow else spec.k
    return Query(
        scope=place.scope,
        system=place.system,
        history=place.history,
        question_id=question.question_id,
        category=question.category,
        question=question.text,
        golds=question.golds,
        stale=question.stale,
        abstain=question.abstain,
        evidence=question.evidence,
        evidence_texts=question.evidence_texts,
        status="ok" if text is not None else "failed",
        answer=text,
        retrieved_ids=tuple(dict.fromkeys(ids)) if told else None,
        retrieved_texts=tuple(e.text for e in used),
        k=wanted,
        overflow=asked.overflow if asked else False,
        cut_tokens=asked.cut_tokens if asked else 0,
        context_tokens=asked.context_tokens if asked else None,
        retrieval_s=times[0],
        generation_s=times[1] if text is not None else None,
        version_read=when.version_read,
        native_answer=native,
        epoch=place.epoch,
        versions_behind=when.versions_behind,
        units_before=when.units_before,
        repeat=place.repeat,
    )


def reference(ctx: Context, system: str, history: History, epoch: int, done: set[str]) -> None:
    """One reference row over all questions of a history, booked to bucket "harness"."""
    scope = f"{system}.{history.history}"
    place = Place(scope, system, history.history, epoch)
    url = ctx.gateway.open_scope(
        Scope(scope, system, history.history, f"{ctx.run_id}:{system}", (), epoch)
    )
    place.mark(ctx, "resumed" if epoch else "open", None, tuple(sorted(done)) if epoch else None)
    ctx.progress.begin(system, "questions", len(history.questions))
    for index, question in enumerate(history.questions):
        if question.question_id not in done:
            texts = question.evidence_texts if system == ORACLE else ()
            found = Retrieved(tuple(Entry(t, None, None) for t in texts))
            ctx.write(_trusted(ctx, place, url, question, found))
            ctx.journal.sync()
        ctx.progress.step(system, "questions", index + 1)
    place.mark(ctx, "done")
    ctx.gateway.close_scope(scope)


def _trusted(ctx: Context, place: Place, url: str, question: Question, found: Retrieved) -> Query:
    """The reference answer, asked again while the model server breaks off; the last one stands."""
    asked, limit_s = prompt(ctx, question, found, False), ctx.profile.limits.query_timeout_s
    windows = Windows(ctx, place)
    for _ in range(TRIES):
        trouble = ctx.trouble(place.scope)
        with windows.window(Task("generation", "harness", question.question_id)):
            text, took = generate(ctx, place, url, question, asked, limit_s)
        if ctx.trouble(place.scope) == trouble:
            break
        ctx.wait_for_engine()
    return row(ctx, place, question, asked, text, (None, took))
