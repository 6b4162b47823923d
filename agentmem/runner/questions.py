"""Ask the reader one question from what was retrieved; also the two reference rows."""

from __future__ import annotations

from agentmem.errors import EngineError
from agentmem.memory import Entry, Retrieved
from agentmem.records import Bucket, Query, Scope
from agentmem.runner.context import Context, Place, window
from agentmem.runner.reader import Prompt, ask, assemble
from agentmem.workloads.base import History, Question

NO_MEMORY, ORACLE = "no_memory", "oracle_evidence"
"""Reference rows: the reader alone, and the reader given the evidence itself."""
TRIES = 3


def answer(
    ctx: Context,
    place: Place,
    url: str,
    question: Question,
    found: Retrieved,
    retrieval_s: float | None,
    passthrough: bool,
    bucket: Bucket = "measured",
) -> Query:
    """Assemble the prompt, ask, and return the finished row; a failed call is a failed question."""
    prompt = assemble(question.text, found.entries, ctx.room, passthrough)
    limits = ctx.profile.limits
    text: str | None = None
    start = ctx.clock()
    with window(ctx, place, "generation", bucket, question.question_id, 0.0):
        try:
            text = ask(
                url, ctx.facts.model, prompt, ctx.profile.answer.max_tokens, limits.query_timeout_s
            )
        except EngineError as err:
            place.failure(ctx, "generate", question.question_id, "upstream_error", str(err))
        took = ctx.clock() - start
    return row(ctx, place, question, found, prompt, text, (retrieval_s, took))


def row(
    ctx: Context,
    place: Place,
    question: Question,
    found: Retrieved | None,
    prompt: Prompt | None,
    text: str | None,
    times: tuple[float | None, float] | None,
) -> Query:
    """The question's record, whatever became of it."""
    used = prompt.used if prompt else ()
    ids = [i for e in used if e.source_ids is not None for i in e.source_ids]
    told = any(e.source_ids is not None for e in used)
    spec = ctx.profile.answer
    return Query(
        place.scope,
        place.system,
        place.history,
        question.question_id,
        question.category,
        question.text,
        question.golds,
        question.stale,
        question.abstain,
        question.evidence,
        question.evidence_texts,
        "ok" if text is not None else "failed",
        text,
        tuple(dict.fromkeys(ids)) if told else None,
        tuple(e.text for e in used),
        spec.k_overflow if prompt and prompt.overflow else spec.k,
        prompt.overflow if prompt else False,
        prompt.cut_tokens if prompt else 0,
        prompt.context_tokens if prompt else None,
        times[0] if times else None,
        times[1] if times and text is not None else None,
        found.version_read if found else None,
        False,
        place.epoch,
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
    for _ in range(TRIES):
        trouble = ctx.trouble(place.scope)
        asked = answer(ctx, place, url, question, found, None, False, "harness")
        if ctx.trouble(place.scope) == trouble:
            break
        ctx.wait_for_engine()
    return asked
