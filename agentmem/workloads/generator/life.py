"""Draw one life: who is in it, what happens when, and what will be asked."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentmem.errors import UsageError
from agentmem.workloads.generator.asks import Ask
from agentmem.workloads.generator.events import Event, EventLog, Introduction
from agentmem.workloads.generator.stream import Stream
from agentmem.workloads.generator.templates import attributes, people

SPARE_VALUES = 6
"""Values of each attribute that no event takes: near misses need some."""
SEVERAL = ("previous", "count", "duration", "aggregate")
"""Kinds that need a slot with more than one value."""


@dataclass(frozen=True, slots=True)
class Life:
    """A log, the questions to ask of it, and what is left for distractors."""

    log: EventLog
    asks: tuple[Ask, ...]
    cast: tuple[str, ...]
    """The user first, then everybody introduced."""
    reserved: frozenset[str]
    """Attributes that nobody may ever mention."""
    spare: Mapping[str, tuple[str, ...]]
    """Values that no event uses, by attribute."""


@dataclass(slots=True)
class Draft:
    """A life being drawn."""

    stream: Stream
    sessions: int
    user: str
    relatives: list[tuple[str, str]]
    open: list[str]
    """Attributes that may be used."""
    pools: dict[str, list[str]]
    events: list[Event] = field(default_factory=list)
    introductions: list[Introduction] = field(default_factory=list)
    slots: set[tuple[str, str]] = field(default_factory=set)

    def value(self, attribute: str) -> str:
        """An unused value that is no part of a used one, nor the other way round."""
        used = [event.value.lower() for event in self.events]
        pool = self.pools[attribute]
        for index, value in enumerate(pool):
            if not any(value.lower() in other or other in value.lower() for other in used):
                return pool.pop(index)
        raise UsageError("workload.questions is too many for one generated history")

    def free(self, person: str) -> str | None:
        """An attribute of the person without a value yet and with values to spare."""
        for attribute in self.stream.shuffled(self.open):
            room = len(self.pools[attribute]) > SPARE_VALUES + 3
            if (person, attribute) not in self.slots and room:
                return attribute
        return None

    def settle(self, person: str, count: int, source: str | None = None) -> Event:
        """Give a fresh slot `count` values in sessions of rising date; the last event."""
        attribute = self.free(person)
        if attribute is None:
            raise UsageError("workload.questions is too many for one generated history")
        self.slots.add((person, attribute))
        days = sorted(self.stream.shuffled(range(self.sessions))[:count])
        for day in days:
            self.events.append(Event(person, attribute, self.value(attribute), day, source))
        return self.events[-1]


def draw(seed: Stream, counts: Mapping[str, int], sessions: int) -> Life:
    """A life with the questions asked for; the same stream gives the same life."""
    if sessions < 2 and any(counts.get(kind) for kind in (*SEVERAL, "order")):
        raise UsageError("workload.sessions must be at least 2 for questions about change")
    keys = seed.shuffled(list(attributes()))
    unmentioned = counts.get("abstain-unmentioned", 0)
    if unmentioned > len(keys) // 2:
        raise UsageError(f"at most {len(keys) // 2} abstain-unmentioned questions per history")
    user, relatives = _cast(seed, _relatives(counts, len(keys) - unmentioned))
    draft = Draft(
        stream=seed,
        sessions=sessions,
        user=user,
        relatives=relatives,
        open=keys[unmentioned:],
        pools={key: seed.shuffled(attributes()[key].values) for key in keys},
    )
    asks = [Ask("abstain-unmentioned", key, user) for key in keys[:unmentioned]]
    asks += _direct(draft, counts) + _by_relation(draft, counts) + _by_source(draft, counts)
    for person, relation in draft.relatives:
        draft.introductions.append(Introduction(person, relation, seed.below(sessions)))
    log = EventLog(
        draft.user,
        tuple(sorted(draft.events, key=lambda e: e.session)),
        tuple(sorted(draft.introductions, key=lambda i: i.session)),
    )
    spare = {key: tuple(pool) for key, pool in draft.pools.items()}
    people_in = (draft.user, *(person for person, _ in draft.relatives))
    return Life(log, tuple(asks), people_in, frozenset(keys[:unmentioned]), spare)


def _cast(stream: Stream, count: int) -> tuple[str, list[tuple[str, str]]]:
    """The user, and (name, relation) of at most `count` others."""
    decks = {kind: stream.shuffled(people()[f"names-{kind}"]) for kind in ("female", "male")}
    user = decks[stream.pick(("female", "male"))].pop()
    pairs = [(r, kind) for kind in decks for r in people()[f"relations-{kind}"]]
    return user, [(decks[kind].pop(), r) for r, kind in stream.shuffled(pairs)[:count]]


def _relatives(counts: Mapping[str, int], attributes_open: int) -> int:
    """How many people besides the user the questions need."""
    beyond = max([counts.get(kind, 0) for kind in ("current", *SEVERAL)]) - attributes_open
    return max(
        counts.get("two-hop", 0),
        min(1, counts.get("abstain-confusable", 0)),
        3 if counts.get("source-conflict") else 0,
        0 if beyond <= 0 else 1 + beyond // 4,
    )


def _direct(draft: Draft, counts: Mapping[str, int]) -> list[Ask]:
    """Questions about people by name. Slots of several values serve several kinds."""
    several = max([counts.get(kind, 0) for kind in SEVERAL] + [(counts.get("current", 0) + 1) // 2])
    several = several if draft.sessions > 1 else 0
    slots: list[Event] = []
    everybody = [draft.user, *(name for name, _ in draft.relatives)]
    for index in range(max(counts.get("current", 0), several, 2 if counts.get("order") else 0)):
        many = 1 if index >= several else 3 if draft.sessions >= 6 and index % 2 else 2
        slots.append(draft.settle(_next_person(draft, everybody), many))
    asks = [Ask("current", e.attribute, e.person) for e in slots[: counts.get("current", 0)]]
    for kind in SEVERAL:
        for event in slots[: counts.get(kind, 0)]:
            row = [e for e in draft.events if (e.person, e.attribute) == _slot(event)]
            named = tuple(e.value for e in row[:2]) if kind == "duration" else ()
            asks.append(Ask(kind, event.attribute, event.person, values=named))
    return asks + _orders(draft, counts.get("order", 0))


def _next_person(draft: Draft, persons: list[str]) -> str:
    """The first with something left to be said; else whoever has the fewest slots."""
    taken = Tally(person for person, _ in draft.slots)
    first, *rest = persons
    if draft.free(first):
        return first
    rest = [name for name in sorted(rest, key=lambda name: taken[name]) if draft.free(name)]
    return rest[0] if rest else first


def _orders(draft: Draft, count: int) -> list[Ask]:
    """Pairs of the user's events of different attributes on different dates."""
    own = [e for e in draft.events if e.person == draft.user]
    pairs = [
        (a, b)
        for index, a in enumerate(own)
        for b in own[index + 1 :]
        if a.session != b.session and a.attribute != b.attribute
    ]
    if len(pairs) < count:
        raise UsageError("too many order questions for one generated history")
    chosen = draft.stream.shuffled(pairs)[:count]
    both = [draft.stream.shuffled(pair) for pair in chosen]
    return [Ask("order", "", draft.user, values=(a.value, b.value)) for a, b in both]


def _by_relation(draft: Draft, counts: Mapping[str, int]) -> list[Ask]:
    """Two-hop questions, and confusable ones: known of the user, never said of the relative."""
    asks: list[Ask] = []
    relation_of = dict(draft.relatives)
    for index in range(counts.get("two-hop", 0)):
        start = index % len(draft.relatives)
        names = [name for name, _ in draft.relatives[start:] + draft.relatives[:start]]
        person = _next_person(draft, names)
        relation = relation_of[person]
        event = draft.settle(person, 2 if draft.sessions >= 6 and index % 2 else 1)
        asks.append(Ask("two-hop", event.attribute, relation=relation))
    known = [a for a in draft.open if (draft.user, a) in draft.slots]
    pairs = [
        (relation, attribute)
        for attribute in draft.stream.shuffled(known or draft.open)
        for person, relation in draft.relatives
        if (person, attribute) not in draft.slots
    ]
    wanted = counts.get("abstain-confusable", 0)
    if len(pairs) < wanted:
        raise UsageError("too many abstain-confusable questions for one generated history")
    for relation, attribute in pairs[:wanted]:
        person = next(name for name, r in draft.relatives if r == relation)
        draft.slots.add((person, attribute))
        asks.append(Ask("abstain-confusable", attribute, relation=relation))
    return asks


def _by_source(draft: Draft, counts: Mapping[str, int]) -> list[Ask]:
    """Two relatives say different things about a third; one of them is asked for."""
    asks: list[Ask] = []
    for _ in range(counts.get("source-conflict", 0)):
        (one, _r), (other, _s), (about, _t) = draft.stream.shuffled(draft.relatives)[:3]
        event = draft.settle(about, 1, source=one)
        day = draft.stream.below(draft.sessions)
        value = draft.value(event.attribute)
        draft.events.append(Event(about, event.attribute, value, day, other))
        asks.append(Ask("source-conflict", event.attribute, about, source=one))
    return asks


def _slot(event: Event) -> tuple[str, str]:
    return event.person, event.attribute
