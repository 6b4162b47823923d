"""The `generated` workload: made from its seed, byte for byte the same everywhere."""

from __future__ import annotations

from dataclasses import dataclass

from agentmem.workloads.base import Conversation, Question, WorkloadSpec
from agentmem.workloads.data import wanted_categories
from agentmem.workloads.generator.asks import DEFAULT_KINDS, KINDS, Ask, find, shares
from agentmem.workloads.generator.calendar import Calendar, draw_calendar
from agentmem.workloads.generator.filler import Filler
from agentmem.workloads.generator.fit import Fitter
from agentmem.workloads.generator.life import Life, draw
from agentmem.workloads.generator.questions import question_text
from agentmem.workloads.generator.render import Script, fact_items
from agentmem.workloads.generator.stream import Stream
from agentmem.workloads.registry import Loaded
from agentmem.workloads.text import dated_line
from agentmem.workloads.tokens import Counter

VERSION = 1
"""Rises whenever the same seed would give another text."""
OPTIONS = frozenset(
    {"seed", "histories", "sessions", "questions", "categories", "history_tokens", "style"}
)
FACT_SESSIONS = 8
"""Sessions that hold facts, where the profile does not say how many sessions there are."""
QUESTIONS = 10
HISTORY_TOKENS = 2000


@dataclass(frozen=True, slots=True)
class Generated:
    """One generated history with what it was made from."""

    conversation: Conversation
    life: Life
    calendar: Calendar
    asks: tuple[Ask, ...]
    """Parallel to the conversation's questions."""


def load(spec: WorkloadSpec, counter: Counter) -> Loaded:
    """All histories of the spec."""
    made = generate(spec, counter)
    params = {
        "histories": len(made),
        "questions": spec.questions or QUESTIONS,
        "history_tokens": spec.history_tokens or HISTORY_TOKENS,
        "categories": spec.categories or DEFAULT_KINDS,
    }
    sources = {"generator": VERSION, "licence": "Apache-2.0"}
    return Loaded(tuple(one.conversation for one in made), sources, params)


def generate(spec: WorkloadSpec, counter: Counter) -> tuple[Generated, ...]:
    """All histories with their logs, for checks."""
    wanted = wanted_categories(spec, KINDS) if spec.categories else frozenset(DEFAULT_KINDS)
    kinds = [kind for kind in KINDS if kind in wanted]
    counts = shares(kinds, spec.questions or QUESTIONS)
    return tuple(_one(spec, counter, counts, index) for index in range(spec.histories or 1))


def _one(spec: WorkloadSpec, counter: Counter, counts: dict[str, int], index: int) -> Generated:
    labels = ("agentmem", VERSION, spec.seed, index)
    sessions = spec.sessions or FACT_SESSIONS
    life = draw(Stream(*labels, "life"), counts, sessions)
    calendar = draw_calendar(Stream(*labels, "calendar"), sessions)
    facts = fact_items(life, spec.style, *labels)
    filler = Filler(life, spec.style, *labels)
    fitter = Fitter(facts, calendar, life.log.user, filler, counter)
    grow = spec.sessions is None
    script = fitter.fit(spec.history_tokens or HISTORY_TOKENS, grow, *labels)
    asks = tuple(Stream(*labels, "order").shuffled(life.asks))
    questions = tuple(
        _question(f"life-{index}/q{number}", ask, life, calendar, script, labels)
        for number, ask in enumerate(asks, start=1)
    )
    user = f"{life.log.user.lower()}-{index}"
    conversation = Conversation(f"life-{index}", user, script.sessions, questions)
    return Generated(conversation, life, calendar, asks)


def _question(
    question_id: str,
    ask: Ask,
    life: Life,
    calendar: Calendar,
    script: Script,
    labels: tuple[object, ...],
) -> Question:
    found = find(life.log, ask, calendar.weeks)
    said = {script.turn_of[happening].source_id for happening in found.evidence}
    turns = [
        turn for session in script.sessions for turn in session.turns if turn.source_id in said
    ]
    return Question(
        question_id,
        question_text(ask, life.log.user, Stream(*labels, question_id)),
        ask.kind,
        found.golds,
        found.stale,
        abstain=ask.kind.startswith("abstain"),
        evidence=tuple(turn.source_id for turn in turns),
        evidence_texts=tuple(dated_line(turn) for turn in turns),
        at=calendar.end.isoformat(),
    )
