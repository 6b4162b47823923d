"""A user's own conversation as JSON or JSONL; docs/workloads.md has the form.

JSON: an object with `sessions` and `questions`, or a list of such objects. JSONL: one turn or one
question a line. Every complaint names the line or the place, and the field.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from agentmem.errors import DataError
from agentmem.memory import Turn
from agentmem.workloads.base import Conversation, Question, Session, WorkloadSpec
from agentmem.workloads.data import find, read_json, read_text, select, sha256, wanted_categories
from agentmem.workloads.registry import Loaded, pick_questions
from agentmem.workloads.text import dated_line
from agentmem.workloads.tokens import Counter
from agentmem.workloads.user_fields import Place, read_question, read_turn

OPTIONS = frozenset({"path", "histories", "samples", "questions", "categories"})
FILE = "conversation.json"
WHERE = "write your conversation in the form of docs/workloads.md"


def load(spec: WorkloadSpec, counter: Counter) -> Loaded:
    """All conversations of the file."""
    path = find(spec, FILE, WHERE)
    lines = path.suffix == ".jsonl"
    drafts = _from_lines(path) if lines else _from_json(read_json(path), path)
    conversations = [_finish(name, draft) for name, draft in drafts.items()]
    if not conversations:
        raise DataError(f"{path} holds no conversation; {WHERE}")
    known = {q.category: 1 for c in conversations for q in c.questions}
    wanted = wanted_categories(spec, tuple(known))
    chosen = tuple(_limit(c, wanted, spec.questions) for c in select(spec, conversations))
    return Loaded(chosen, {"files": {path.name: sha256(path)}, "licence": "your own"})


class Draft:
    """A conversation while its file is read."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.sessions: dict[str, list[Turn]] = {}
        self.dates: dict[str, str | None] = {}
        self.questions: list[tuple[Question, Place]] = []

    def add(self, session: str, raw: Any, date: str | None, place: Place) -> None:
        """Append a turn; its session's first date counts for all of the session."""
        at = self.dates.setdefault(session, date)
        turns = self.sessions.setdefault(session, [])
        turns.append(read_turn(raw, f"{session}:t{len(turns) + 1}", at, place))

    def ask(self, raw: Any, history: str, place: Place) -> None:
        number = len(self.questions) + 1
        self.questions.append((read_question(raw, f"{history}/q{number}", place), place))


def _from_json(data: Any, path: Path) -> dict[str, Draft]:
    """The JSON form."""
    listed = isinstance(data, list)
    drafts: dict[str, Draft] = {}
    for index, raw in enumerate(data if listed else [data]):
        place = Place(f"{path.name}: conversation {index + 1}" if listed else path.name)
        place.check(raw, required=("sessions",), optional=("history", "user", "questions"))
        name = place.folder(raw, "history", f"conversation-{index + 1}")
        if name in drafts:
            raise place.error("history", f"{name!r} is already the id of another conversation")
        draft = drafts[name] = Draft(place.text(raw, "user", name))
        for number, session in enumerate(place.list(raw, "sessions"), start=1):
            inner = place.at(f"sessions[{number - 1}]")
            inner.check(session, required=("turns",), optional=("id", "date"))
            session_id = inner.text(session, "id", f"s{number}")
            if session_id in draft.sessions:
                raise inner.error("id", f"{session_id!r} is already the id of another session")
            date = inner.date(session)
            for turn_number, turn in enumerate(inner.list(session, "turns")):
                draft.add(session_id, turn, date, inner.at(f"turns[{turn_number}]"))
        for number, question in enumerate(place.list(raw, "questions", [])):
            draft.ask(question, name, place.at(f"questions[{number}]"))
    return drafts


def _from_lines(path: Path) -> dict[str, Draft]:
    """The JSONL form: `session`, `date` and `history` stand on the lines themselves."""
    drafts: dict[str, Draft] = {}
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        place = Place(f"{path.name}, line {number}")
        try:
            raw = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{place.where} is not JSON: {error.msg}") from error
        except (ValueError, RecursionError) as error:
            raise DataError(f"{place.where} cannot be read as JSON: {error}") from error
        place.object(raw)
        history = place.folder(raw, "history", "conversation-1")
        user = place.text(raw, "user", history)
        draft = drafts.setdefault(history, Draft(user))
        rest = {k: v for k, v in raw.items() if k not in ("history", "user", "session", "date")}
        if "question" in raw:
            draft.ask(rest, history, place)
        else:
            draft.add(place.text(raw, "session", "s1"), rest, place.date(raw), place)
    if not drafts:
        raise DataError(f"{path} is empty")
    return drafts


def _finish(name: str, draft: Draft) -> Conversation:
    """The conversation, its evidence ids looked up."""
    turns = [turn for session in draft.sessions.values() for turn in session]
    if not turns:
        raise DataError(f"conversation {name!r} has no turns")
    by_id: dict[str, Turn] = {}
    for turn in turns:
        if turn.source_id in by_id:
            raise DataError(f"conversation {name!r} has two turns with id {turn.source_id!r}")
        by_id[turn.source_id] = turn
    questions = []
    asked: set[str] = set()
    for question, place in draft.questions:
        if question.question_id in asked:
            raise place.error("id", f"{question.question_id!r} is another question's id")
        asked.add(question.question_id)
        for key in question.evidence:
            if key not in by_id:
                raise place.error("evidence", f"there is no turn with id {key!r}")
        texts = tuple(dated_line(by_id[key]) for key in question.evidence)
        questions.append(_with_texts(question, texts))
    sessions = tuple(
        Session(key, draft.dates[key], tuple(value))
        for key, value in draft.sessions.items()
        if value
    )
    return Conversation(name, draft.user, sessions, tuple(questions))


def _with_texts(question: Question, texts: tuple[str, ...]) -> Question:
    return dataclasses.replace(question, evidence_texts=texts)


def _limit(item: Conversation, wanted: frozenset[str], limit: int | None) -> Conversation:
    questions = tuple(q for q in item.questions if q.category in wanted)
    return Conversation(item.history, item.user, item.sessions, pick_questions(questions, limit))
