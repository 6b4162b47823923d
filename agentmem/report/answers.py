"""Questions with what each system answered and found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from agentmem.analysis import tables
from agentmem.analysis.load import Run
from agentmem.report import format as fmt

MAX_TEXTS, MAX_CHARS = 10, 280
"""Retrieved pieces shown per answer, and characters shown of each."""
TEXT_LIMIT = 80
"""Above this many questions the retrieved texts are left out, to keep the file readable."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One system's answer to one question."""

    system: str
    title: str
    answer: str
    verdict: str
    """right, stale, wrong, abstained, failed."""
    mark: str
    recall: str
    seconds: str
    texts: tuple[str, ...]
    shown: str
    """What the list of texts is called."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question and its replies, in the order of the systems."""

    question_id: str
    history: str
    category: str
    question: str
    gold: str
    stale: str
    replies: tuple[Reply, ...]


MARKS = {"right": "✓", "stale": "↺", "wrong": "✗", "abstained": "○", "failed": "!"}


def asked(run: Run) -> tuple[Asked, ...]:
    """All questions of a run in the order asked."""
    # Scores are made of the queries row by row; keys alone would mix the repeats of a question.
    scores = run.scores[[c for c in run.scores if c not in run.queries]]
    merged = pd.concat([run.queries, scores], axis=1)
    with_texts = merged.groupby(["history", "question_id"]).ngroups <= TEXT_LIMIT
    rank = {name: i for i, name in enumerate(run.systems)}
    found = []
    for _, group in merged.groupby(["history", "question_id"], sort=False):
        rows = sorted(
            group.to_dict("records"), key=lambda row: (rank[row["system"]], row["repeat"])
        )
        found.append(_asked(run, rows, with_texts))  # type: ignore[arg-type]
    return tuple(found)


def _asked(run: Run, rows: list[dict[str, Any]], with_texts: bool) -> Asked:
    first = rows[0]
    gold = "not known" if first["abstain"] else " / ".join(first["golds"])
    return Asked(
        question_id=first["question_id"],
        history=first["history"],
        category=first["category"],
        question=first["question"],
        gold=gold,
        stale=" / ".join(first["stale"]),
        replies=tuple(_reply(run, row, with_texts) for row in rows),
    )


def _reply(run: Run, row: dict[str, Any], with_texts: bool) -> Reply:
    verdict, several = _verdict(row), bool((run.queries["repeat"] > 0).any())
    texts = row["retrieved_texts"][:MAX_TEXTS] if with_texts else ()
    spent = [s for s in (row["retrieval_s"], row["generation_s"]) if fmt.known(s) is not None]
    return Reply(
        system=row["system"],
        title=tables.title(run, row["system"]) + (f" ({row['repeat'] + 1})" if several else ""),
        answer=row["answer"] if isinstance(row["answer"], str) else "(no answer)",
        verdict=verdict,
        mark=MARKS[verdict],
        recall=f"{fmt.percent(row['recall_ids'])} / {fmt.percent(row['recall_text'])}",
        seconds=fmt.seconds(sum(spent)) if spent else fmt.UNKNOWN,
        shown=f"{len(texts)} of {fmt.plural(len(row['retrieved_texts']), 'piece')} retrieved",
        texts=tuple(t if len(t) <= MAX_CHARS else t[:MAX_CHARS] + " …" for t in texts),
    )


def _verdict(row: dict[str, Any]) -> str:
    if not row["answered"]:
        return "failed"
    if row["correct"]:
        return "right"
    if fmt.known(row["stale_answer"]):
        return "stale"
    return "abstained" if row["abstained"] else "wrong"
