"""Self-checks of generated histories, by reading their text back (see `solve`)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from agentmem.memory import Turn
from agentmem.workloads.base import Question, WorkloadSpec
from agentmem.workloads.check import CheckRow, share
from agentmem.workloads.generator.asks import MENTIONED, Ask, Found, find
from agentmem.workloads.generator.events import Happening
from agentmem.workloads.generator.load import HISTORY_TOKENS, Generated, generate
from agentmem.workloads.generator.solve import join, read_turn
from agentmem.workloads.generator.templates import attributes
from agentmem.workloads.text import history_text
from agentmem.workloads.tokens import Counter

TOLERANCE = 0.01
"""Largest relative difference between measured and asked length."""
GUESS_LIMIT = 0.06
"""Largest mean chance of a right guess among an attribute's values, the history unseen."""


@dataclass(slots=True)
class Totals:
    """Good cases and all cases, by check, over all histories."""

    good: dict[str, int] = field(default_factory=dict)
    whole: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, good: bool) -> None:
        self.good[name] = self.good.get(name, 0) + good
        self.whole[name] = self.whole.get(name, 0) + 1


def check_generated(spec: WorkloadSpec, counter: Counter) -> list[CheckRow]:
    """Checks of every history that the spec generates."""
    totals = Totals()
    rows: list[CheckRow] = []
    asked = spec.history_tokens or HISTORY_TOKENS
    chances: list[float] = []
    for made in generate(spec, counter):
        tokens = counter.count(history_text(made.conversation))
        name = f"{made.conversation.history}: tokens within {TOLERANCE:.0%}"
        close = abs(tokens - asked) <= TOLERANCE * asked
        rows.append(CheckRow(name, f"{tokens} for {asked}", close))
        _one(made, totals)
        chances += [_chance(ask) for ask in made.asks if ask.attribute and ask.kind in MENTIONED]
    rows += [share(name, totals.good[name], whole) for name, whole in totals.whole.items()]
    if chances:
        mean = sum(chances) / len(chances)
        rows.append(CheckRow("chance of a blind guess", f"{mean:.3f}", mean <= GUESS_LIMIT))
    return rows


def _one(made: Generated, totals: Totals) -> None:
    turns = [turn for session in made.conversation.sessions for turn in session.turns]
    user = made.life.log.user
    told = {turn.source_id: (turn.at or "", read_turn(turn, user)) for turn in turns}
    told = {key: value for key, value in told.items() if value[1]}
    for question, ask in zip(made.conversation.questions, made.asks, strict=True):
        if question.abstain:
            silent = not _answer(told, user, ask).golds and not question.golds
            totals.add("declined questions have no answer in the text", silent)
            continue
        only = {key: told[key] for key in question.evidence if key in told}
        totals.add(
            "evidence alone gives the gold", _answer(only, user, ask).golds == question.golds
        )
        whole = _answer(told, user, ask)
        same = whole.golds == question.golds and whole.stale == question.stale
        totals.add("the whole text gives gold and stale values", same)
        for key in question.evidence:
            less = {k: v for k, v in told.items() if k != key}
            lost = _answer(less, user, ask).golds != question.golds
            totals.add("dropping an evidence turn loses the answer", lost)
        if ask.kind in MENTIONED:
            _mentions(question, turns, totals)
    said = [turn.text for turn in turns if turn.role == "user"]
    totals.add("no user turn twice", len(set(said)) == len(said))


def _mentions(question: Question, turns: list[Turn], totals: Totals) -> None:
    """The gold is a string of the evidence, and of no other turn."""
    gold = re.compile(rf"\b{re.escape(question.golds[0])}\b", re.IGNORECASE)
    inside = any(gold.search(text) for text in question.evidence_texts)
    totals.add("gold found in the evidence text", inside)
    outside = [
        turn.source_id
        for turn in turns
        if turn.source_id not in question.evidence and gold.search(turn.text)
    ]
    totals.add("gold found nowhere else", not outside)


def _answer(told: dict[str, tuple[str, tuple[Happening, ...]]], user: str, ask: Ask) -> Found:
    log, weeks = join(told.values(), user)
    return find(log, ask, weeks)


def _chance(ask: Ask) -> float:
    return 1 / len(attributes()[ask.attribute].values)
