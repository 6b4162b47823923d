"""LoCoMo: ten long conversations between two friends, with questions in five categories.

Read from `locomo10.json` (and `audit_errors.json` beside it, a third party's audit of the golds).
Both are CC BY-NC 4.0: non-commercial use, read where they lie, never copied. What is kept of each
turn: speaker, text and, with `captions`, the caption of a shared picture. The picture's search
`query` is never used: it gives some golds away.
"""

from __future__ import annotations

from collections import Counter as Tally
from datetime import datetime
from typing import Any

from agentmem.errors import DataError
from agentmem.memory import Turn
from agentmem.workloads.base import Conversation, Session, WorkloadSpec
from agentmem.workloads.data import find, read_json, select, sha256, wanted_categories
from agentmem.workloads.locomo_questions import CATEGORIES, audit_of, read_questions
from agentmem.workloads.registry import Loaded, pick_questions
from agentmem.workloads.tokens import Counter

OPTIONS = frozenset(
    {
        *("path", "histories", "samples", "sessions", "questions", "categories"),
        *("drop_wrong_golds", "captions"),
    }
)
FILE = "locomo/locomo10.json"
AUDIT = "locomo/audit_errors.json"
WHERE = "get data/locomo10.json from the GitHub repository snap-research/locomo (CC BY-NC 4.0)"
WHERE_AUDIT = (
    "drop_wrong_golds reads the audit: get errors.json from the GitHub repository "
    "dial481/locomo-audit and name it audit_errors.json, beside locomo10.json"
)


def load(spec: WorkloadSpec, counter: Counter) -> Loaded:
    """The conversations and questions that the spec asks for, with counts of what was mended."""
    path = find(spec, FILE, WHERE)
    files = {path.name: sha256(path)}
    audit: list[dict[str, Any]] = []
    if spec.drop_wrong_golds:
        beside = path.with_name("audit_errors.json")
        audit_path = beside if beside.is_file() else find(spec, AUDIT, WHERE_AUDIT)
        audit = read_json(audit_path)
        files[audit_path.name] = sha256(audit_path)
    wanted = wanted_categories(spec, tuple(CATEGORIES.values()))
    counts: Tally[str] = Tally()
    samples = read_json(path)
    if not isinstance(samples, list) or not all("conversation" in s for s in samples):
        raise DataError(f"{path} is not LoCoMo: expected a list of samples with a conversation")
    conversations = select(spec, [_conversation(sample, spec.captions) for sample in samples])
    by_id = {sample["sample_id"]: index for index, sample in enumerate(samples)}
    finished = []
    for conversation in conversations:
        index = by_id[conversation.history]
        marks = audit_of(audit, index)
        cut = _first_sessions(conversation, spec.sessions)
        questions = read_questions(samples[index], conversation, cut, marks, wanted, counts)
        picked = pick_questions(questions, spec.questions)
        finished.append(Conversation(conversation.history, conversation.user, cut.sessions, picked))
    sources = {"files": files, "licence": "CC BY-NC 4.0", "counts": dict(sorted(counts.items()))}
    return Loaded(tuple(finished), sources)


def _conversation(sample: dict[str, Any], captions: bool) -> Conversation:
    """Sessions that exist, in order; date keys of sessions that do not are ignored."""
    talk = sample["conversation"]
    numbers = sorted(
        int(key.removeprefix("session_"))
        for key, value in talk.items()
        if key.removeprefix("session_").isdecimal() and isinstance(value, list) and value
    )
    sessions = []
    for number in numbers:
        at = _iso(talk[f"session_{number}_date_time"])
        turns = tuple(
            _turn(raw, at, talk["speaker_a"], captions) for raw in talk[f"session_{number}"]
        )
        sessions.append(Session(f"session-{number}", at, turns))
    return Conversation(sample["sample_id"], sample["sample_id"], tuple(sessions), ())


def _turn(raw: dict[str, Any], at: str, first_speaker: str, captions: bool) -> Turn:
    """The first speaker plays the user, the second the assistant."""
    text = raw["text"]
    caption = raw.get("blip_caption")
    if captions and caption:
        text = f"{text} (shares a picture: {caption})".strip()
    role = "user" if raw["speaker"] == first_speaker else "assistant"
    return Turn(raw["dia_id"], raw["speaker"], role, text, at)


def _iso(stamp: str) -> str:
    """`1:56 pm on 8 May, 2023` as ISO 8601."""
    try:
        return datetime.strptime(stamp, "%I:%M %p on %d %B, %Y").isoformat()
    except ValueError as error:
        raise DataError(
            f"LoCoMo session date {stamp!r} is not like '1:56 pm on 8 May, 2023'"
        ) from error


def _first_sessions(conversation: Conversation, limit: int | None) -> Conversation:
    return Conversation(conversation.history, conversation.user, conversation.sessions[:limit], ())
