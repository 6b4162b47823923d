"""Read a generated history back into an event log, from its text alone.

What the templates can say, their patterns can read. Near misses, news of strangers and small talk
match no pattern, or a person whom nobody asks about.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache

from agentmem.memory import Turn
from agentmem.workloads.generator.asks import Weeks
from agentmem.workloads.generator.events import Event, EventLog, Happening, Introduction
from agentmem.workloads.generator.templates import attributes, people

_SOURCE = re.compile(r"^According to (?P<source>[A-Z]\w+), ")
_SENTENCE_END = re.compile(r"(?<=[.?!]) (?=[A-Z])")
_SLOTS = {
    "{S}": r"(?P<who>I|[A-Z]\w+(?: [A-Z]\w+)?)",
    "{O}": r"(?P<who>me|[A-Z]\w+(?: [A-Z]\w+)?)",
    "{P}": r"(?P<who>my|[A-Z]\w+(?: [A-Z]\w+)?'s)",
    "{P^}": r"(?P<who>My|[A-Z]\w+(?: [A-Z]\w+)?'s)",
    "{V}": r"(?P<value>.+)",
    "{R}": r"(?P<relation>[a-z ]+)",
    "{N}": r"(?P<name>[A-Z]\w+)",
}


@dataclass(frozen=True, slots=True)
class Pattern:
    """One statement template as a regular expression, with a literal that it must contain."""

    attribute: str
    anchor: str
    regex: re.Pattern[str]


def _pattern(attribute: str, template: str) -> Pattern:
    pieces = re.split(r"(\{[A-Z]\^?\})", template)
    seen: set[str] = set()
    body = ""
    for piece in pieces:
        slot = _SLOTS.get(piece)
        group = slot[slot.index("<") + 1 : slot.index(">")] if slot else ""
        if slot and group in seen:
            slot = r"(?:I|me|my|[A-Z][\w' ]+?)"
        seen.add(group)
        body += slot or re.escape(piece)
    literals = [piece for piece in pieces if piece not in _SLOTS]
    return Pattern(attribute, max(literals, key=len), re.compile(f"^{body}$"))


@cache
def patterns() -> tuple[Pattern, ...]:
    """Patterns of every statement; an introduction's attribute is ""."""
    known = [_pattern("", text) for text in people()["introductions"]]
    for key, attribute in attributes().items():
        known += [_pattern(key, text) for text in attribute.statements]
    return tuple(known)


def read_sentence(sentence: str) -> list[tuple[str, Mapping[str, str]]]:
    """(attribute, groups) of every template that the sentence fits."""
    found: list[tuple[str, Mapping[str, str]]] = []
    for pattern in patterns():
        if pattern.anchor in sentence:
            match = pattern.regex.match(sentence)
            if match and _plausible(pattern.attribute, match.groupdict()):
                found.append((pattern.attribute, match.groupdict()))
    return found


def _plausible(attribute: str, groups: Mapping[str, str]) -> bool:
    """Only values that the attribute can have: a cut sentence may fit a shorter template."""
    return not attribute or groups["value"] in _values(attribute)


@cache
def _values(attribute: str) -> frozenset[str]:
    return frozenset(attributes()[attribute].values)


def read_turn(turn: Turn, user: str) -> tuple[Happening, ...]:
    """What one turn tells, its session left at 0."""
    if turn.role != "user":
        return ()
    told: list[Happening] = []
    for sentence in _SENTENCE_END.split(turn.text):
        heard = _SOURCE.match(sentence)
        source = heard["source"] if heard else None
        for attribute, groups in read_sentence(sentence[heard.end() :] if heard else sentence):
            if attribute:
                who = _who(groups["who"], user)
                told.append(Event(who, attribute, groups["value"], 0, source))
            else:
                told.append(Introduction(groups["name"], groups["relation"], 0))
    return tuple(told)


def join(told: Iterable[tuple[str, tuple[Happening, ...]]], user: str) -> tuple[EventLog, Weeks]:
    """The log of (time stamp, what was told) pairs, and the week of each of its sessions."""
    ordered = sorted(told, key=lambda pair: pair[0])
    days = {at: number for number, at in enumerate(dict.fromkeys(at for at, _ in ordered))}
    dates = [datetime.fromisoformat(at).date() for at in days]
    weeks = [(date - dates[0]).days // 7 for date in dates]
    dated = [replace(h, session=days[at]) for at, happenings in ordered for h in happenings]
    events = tuple(h for h in dated if isinstance(h, Event))
    return EventLog(user, events, tuple(h for h in dated if isinstance(h, Introduction))), weeks


def _who(words: str, user: str) -> str:
    return user if words in ("I", "me", "my", "My") else words.removesuffix("'s")
