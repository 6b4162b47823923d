"""Deterministic scores of answers and of what was retrieved for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from agentmem.analysis.frames import frame
from agentmem.analysis.normal import contains, normalise, says_unknown, token_f1, words
from agentmem.records import Query

CORRECT_RULE = (
    "Correct: a gold answer's words occur in the answer in a row, after lower-casing and leaving "
    "out punctuation and articles. A gold of one word with at most three letters (yes, no) must "
    "be the whole answer or its first word; numbers count wherever they stand. When the "
    "right answer is that it is not known, correct means that the answer says so. "
    "A question without an answer counts as asked and not correct, with an F1 of 0."
)


@dataclass(frozen=True, slots=True)
class Score:
    """How one question went. None: the score does not apply or cannot be known."""

    system: str
    history: str
    question_id: str
    category: str
    abstain: bool
    answered: bool
    correct: bool
    exact: bool
    substring: bool
    """A gold occurs in the answer, whatever its length."""
    f1: float | None
    """Best token F1 over the golds, 0 without an answer; None when the question has no gold."""
    stale_answer: bool | None
    """The answer holds a superseded value and no gold; None when no superseded value is known."""
    hedged: bool | None
    """The answer holds a gold and a superseded value."""
    abstained: bool
    """The answer says that it does not know."""
    recall_ids: float | None
    """Share of the evidence whose source id was retrieved; None when no ids were returned."""
    recall_text: float | None
    """1 when a gold occurs in the retrieved text, else 0."""
    recall_evidence_text: float | None
    """Share of the evidence texts that occur in the retrieved text."""


def score(query: Query) -> Score:
    """Score one question."""
    answer = query.answer or ""
    golds = [g for g in query.golds if words(g)]
    hit = any(contains(answer, gold) for gold in golds)
    stale = any(contains(answer, value) for value in query.stale) if query.stale else None
    answered = query.status == "ok" and query.answer is not None
    return Score(
        system=query.system,
        history=query.history,
        question_id=query.question_id,
        category=query.category,
        abstain=query.abstain,
        answered=answered,
        correct=answered and is_correct(query, answer, golds),
        exact=any(normalise(answer) == normalise(gold) for gold in golds),
        substring=hit,
        f1=max((token_f1(answer, gold) for gold in golds), default=None),
        stale_answer=None if stale is None else stale and not hit,
        hedged=None if stale is None else stale and hit,
        abstained=answered and says_unknown(answer),
        recall_ids=recall_ids(query),
        recall_text=recall_text(query, golds),
        recall_evidence_text=recall_evidence_text(query),
    )


def is_correct(query: Query, answer: str, golds: Sequence[str]) -> bool:
    """The rule of CORRECT_RULE."""
    if query.abstain:
        return says_unknown(answer)
    return any(_right(answer, gold) for gold in golds)


def _right(answer: str, gold: str) -> bool:
    wanted = words(gold)
    if len(wanted) == 1 and re.fullmatch(r"[^\W\d]{1,3}", wanted[0]):
        return words(answer)[:1] == wanted
    return contains(answer, gold)


def recall_ids(query: Query) -> float | None:
    if query.abstain or query.retrieved_ids is None or not query.evidence:
        return None
    found = set(query.evidence) & set(query.retrieved_ids)
    return len(found) / len(set(query.evidence))


def recall_text(query: Query, golds: Sequence[str]) -> float | None:
    if query.abstain or not golds or query.status != "ok":
        return None
    return float(any(contains(t, g) for t in query.retrieved_texts for g in golds))


def recall_evidence_text(query: Query) -> float | None:
    texts = [t for t in query.evidence_texts if words(t)]
    if query.abstain or not texts or query.status != "ok":
        return None
    found = [t for t in texts if any(contains(r, t) for r in query.retrieved_texts)]
    return len(found) / len(texts)


def score_frame(queries: Iterable[Query]) -> pd.DataFrame:
    """One row per question and system."""
    return frame([score(query) for query in queries], Score)
