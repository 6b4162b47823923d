"""Kinds of questions, each a query over the event log that yields golds, stale values, evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentmem.workloads.generator.events import Event, EventLog, Happening

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked, before it has words."""

    kind: str
    attribute: str
    person: str = ""
    relation: str = ""
    """Asked instead of the name: "Nora's sister"."""
    source: str = ""
    values: tuple[str, ...] = ()
    """Values that the question itself names (order, duration)."""


@dataclass(frozen=True, slots=True)
class Found:
    """Result of a query. `golds` is empty when the log does not know."""

    golds: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    evidence: tuple[Happening, ...] = ()


Weeks = Sequence[int]
"""Week of each fact session, counted from the first."""


def _current(log: EventLog, ask: Ask, weeks: Weeks) -> Found:
    row = log.values(ask.person, ask.attribute)
    return _last(row) if row else Found()


def _last(row: tuple[Event, ...]) -> Found:
    return Found((row[-1].value,), tuple(e.value for e in row[:-1]), (row[-1],))


def _previous(log: EventLog, ask: Ask, weeks: Weeks) -> Found:
    row = log.values(ask.person, ask.attribute)
    if len(row) < 2:
        return Found()
    return Found((row[-2].value,), tuple(e.value for e in row[:-2]), row[-2:])


def _two_hop(log: EventLog, ask: Ask, weeks: Weeks) -> Found:
    who = log.introduction(ask.relation)
    row = log.values(who.person, ask.attribute) if who else ()
    if who is None or not row:
        return Found()
    last = _last(row)
    return Found(last.golds, last.stale, (who, *last.evidence))


def _order(log: EventLog, ask: Ask, weeks: Weeks) -> Found:
    row = [e for e in log.events if e.person == ask.person and e.value in ask.values]
    if len(row) < 2 or row[0].session == row[1].session:
        return Found()
    return Found((row[0].value,), (), tuple(row))


def _count(log: EventLog, ask: Ask, weeks: Weeks) -> Found:
    row = log.values(ask.person, ask.attribute)
    return Found(_number(len(row), ""), (), row) if row else Found()


def _duration(log: EventLog, ask: Ask, weeks: Weeks) -> Found:
    row = [e for e in log.values(ask.person, ask.attribute) if e.value in ask.values]
    if len(row) < 2:
        return Found()
    return Found(_number(weeks[row[1].session] - weeks[row[0].session], "week"), (), tuple(row))


def _aggregate(log: EventLog, ask: Ask, weeks: Weeks) -> Found:
    row = log.values(ask.person, ask.attribute)
    return Found((", ".join(e.value for e in row),), (), row) if row else Found()


def _source(log: EventLog, ask: Ask, weeks: Weeks) -> Found:
    row = log.heard(ask.source, ask.person, ask.attribute)
    return Found((row[-1].value,), (), (row[-1],)) if row else Found()


def _abstain(log: EventLog, ask: Ask, weeks: Weeks) -> Found:
    """Nothing is found because nothing was said; anything found would be a flaw of the set."""
    return _two_hop(log, ask, weeks) if ask.relation else _current(log, ask, weeks)


def _number(count: int, noun: str) -> tuple[str, ...]:
    """Written forms of a number, with and without its noun."""
    forms = [str(count)] + ([NUMBERS[count]] if count < len(NUMBERS) else [])
    plural = f" {noun}{'' if count == 1 else 's'}" if noun else ""
    return tuple(dict.fromkeys([f + plural for f in forms] + forms))


QUERIES: dict[str, Callable[[EventLog, Ask, Weeks], Found]] = {
    "current": _current,
    "previous": _previous,
    "two-hop": _two_hop,
    "abstain-unmentioned": _abstain,
    "abstain-confusable": _abstain,
    "order": _order,
    "count": _count,
    "duration": _duration,
    "aggregate": _aggregate,
    "source-conflict": _source,
}
KINDS = tuple(QUERIES)
WEIGHTS = {"current": 4, "previous": 2, "two-hop": 2}
"""Share of a kind among the questions; 1 for every other kind."""
DEFAULT_KINDS = KINDS[:5]
MENTIONED = frozenset({"current", "previous", "two-hop", "order", "source-conflict"})
"""Kinds whose gold is a string of the evidence; the others are computed from it."""


def find(log: EventLog, ask: Ask, weeks: Weeks) -> Found:
    """The answer that the log gives."""
    return QUERIES[ask.kind](log, ask, weeks)


def shares(kinds: Sequence[str], total: int) -> dict[str, int]:
    """`total` questions over the kinds by weight, largest remainders first."""
    weights = {kind: WEIGHTS.get(kind, 1) for kind in kinds}
    whole = sum(weights.values())
    counts = {kind: total * weight // whole for kind, weight in weights.items()}
    rest = sorted(kinds, key=lambda kind: -(total * weights[kind] % whole))
    for kind in rest[: total - sum(counts.values())]:
        counts[kind] += 1
    return counts
