"""LongMemEval: one history of user-assistant sessions per question, the answer in a few of them.

Reads the published form (a list of questions, each with its `haystack_sessions`) and a slice form
(`queries` and `documents`, sessions as text). `sessions = N` keeps N sessions of each history:
those with the evidence, and the first others, in their order.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from agentmem.errors import DataError
from agentmem.memory import Turn
from agentmem.workloads.base import Conversation, Question, Session, WorkloadSpec
from agentmem.workloads.data import find, read_json, select, sha256
from agentmem.workloads.registry import Loaded
from agentmem.workloads.text import dated_line
from agentmem.workloads.tokens import Counter

OPTIONS = frozenset({"path", "histories", "samples", "sessions", "categories"})
FILE = "longmemeval/longmemeval_s.json"
SLICE = "longmemeval/longmemeval_s_single_session_user.json"
WHERE = (
    "get longmemeval_s.json (or the _m or _oracle file) as the GitHub repository "
    "xiaowu0162/LongMemEval says (MIT)"
)
_TURN = re.compile(r"(?:^|\n)(user|assistant): ")
_SPEAKERS = {"user": "User", "assistant": "Assistant"}


def load(spec: WorkloadSpec, counter: Counter) -> Loaded:
    """One history per question whose sessions are all there."""
    try:
        path = find(spec, FILE, WHERE)
    except DataError:
        if spec.path is not None:
            raise
        path = find(spec, SLICE, WHERE)
    data = read_json(path)
    counts: Tally[str] = Tally()
    if isinstance(data, dict) and {"queries", "documents"} <= data.keys():
        items = list(_slice(data, counts))
    elif isinstance(data, list) and all("haystack_sessions" in entry for entry in data):
        items = [_published(entry) for entry in data]
    else:
        raise DataError(f"{path} is not LongMemEval: no haystack_sessions, no queries + documents")
    if spec.categories:
        items = [item for item in items if item.questions[0].category in spec.categories]
        if not items:
            raise DataError(f"{path} has no question of {', '.join(spec.categories)}")
    chosen = [_shorten(item, spec.sessions) for item in select(spec, items)]
    sources = {"files": {path.name: sha256(path)}, "licence": "MIT", "counts": dict(counts)}
    return Loaded(tuple(chosen), sources)


def _published(entry: dict[str, Any]) -> Conversation:
    """An entry of the published form: roles and contents, `has_answer` on the evidence turns."""
    history = str(entry["question_id"])
    sessions: list[Session] = []
    evidence: list[Turn] = []
    ids = entry["haystack_session_ids"]
    dates = entry.get("haystack_dates") or [None] * len(ids)
    for number, (session_id, date, raw) in enumerate(
        zip(ids, dates, entry["haystack_sessions"], strict=True), start=1
    ):
        at = _iso(date)
        name = f"{number}:{session_id}"
        turns = []
        for index, message in enumerate(raw, start=1):
            role = message["role"]
            turn = Turn(f"{name}:t{index}", _SPEAKERS[role], role, message["content"].strip(), at)
            if turn.text:
                turns.append(turn)
                evidence += [turn] if message.get("has_answer") else []
        if turns:
            sessions.append(Session(name, at, tuple(turns)))
    question = _question(
        history,
        entry["question"],
        entry["question_type"],
        entry["answer"],
        evidence,
        entry.get("question_date"),
    )
    return Conversation(history, history, tuple(sessions), (question,))


def _slice(data: dict[str, Any], counts: Tally[str]) -> Iterator[Conversation]:
    """The slice form. Evidence is the turns of the gold sessions that say the answer, or all the
    user's turns there when none does so literally."""
    documents = {document["id"]: document["text"] for document in data["documents"]}
    for query in data["queries"]:
        if not documents.keys() >= set(query["haystack"]):
            counts["questions_with_incomplete_history_dropped"] += 1
            continue
        sessions = tuple(_split(key, documents[key]) for key in query["haystack"])
        gold = [t for s in sessions if s.session_id in query["gold"] for t in s.turns]
        said = [t for t in gold if query["answer"].lower() in t.text.lower()]
        evidence = said or [t for t in gold if t.role == "user"]
        counts["questions_with_literal_evidence"] += bool(said)
        question = _question(
            query["id"],
            query["query"],
            query["question_type"],
            query["answer"],
            evidence,
            query.get("question_date"),
        )
        yield Conversation(query["id"], query["id"], sessions, (question,))


def _split(session_id: str, text: str) -> Session:
    """Turns of a session given as text."""
    parts = _TURN.split(text)
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    turns = tuple(
        Turn(f"{session_id}:t{number}", _SPEAKERS[role], role, said.strip())
        for number, (role, said) in enumerate(pairs, start=1)
        if said.strip()
    )
    return Session(session_id, None, turns)


def _question(
    history: str, text: str, category: str, answer: Any, evidence: list[Turn], date: str | None
) -> Question:
    """Questions whose id ends in `_abs` are to be declined."""
    abstain = history.endswith("_abs")
    return Question(
        f"{history}/q",
        text,
        category,
        () if abstain else (str(answer),),
        abstain=abstain,
        evidence=() if abstain else tuple(turn.source_id for turn in evidence),
        evidence_texts=() if abstain else tuple(dated_line(turn) for turn in evidence),
        at=_iso(date),
    )


def _iso(date: str | None) -> str | None:
    """`2023/05/30 (Tue) 23:40` as ISO 8601."""
    if date is None:
        return None
    try:
        return datetime.strptime(re.sub(r" \(\w+\)", "", date), "%Y/%m/%d %H:%M").isoformat()
    except ValueError as error:
        raise DataError(
            f"LongMemEval date {date!r} is not like '2023/05/30 (Tue) 23:40'"
        ) from error


def _shorten(item: Conversation, limit: int | None) -> Conversation:
    if limit is None or limit >= len(item.sessions):
        return item
    needed = set(item.questions[0].evidence)
    holds = [any(turn.source_id in needed for turn in s.turns) for s in item.sessions]
    order = sorted(range(len(holds)), key=lambda index: (not holds[index], index))
    kept = set(order[: max(limit, sum(holds))])
    sessions = tuple(s for index, s in enumerate(item.sessions) if index in kept)
    return Conversation(item.history, item.user, sessions, item.questions)
