"""Read a generated history back into an event log, from its text alone.

What the templates can say, their patterns can read. Near misses, news of strangers and small talk
match no pattern, or a person whom nobody asks about.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from agentmem.memory import Turn
from agentmem.workloads.generator.events import Event, EventLog, Introduction
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
            slot = rf"(?:(?P={group})|my|me)"
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
    found = []
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


def read_log(turns: Iterable[Turn], user: str) -> EventLog:
    """The log that these turns tell, in the order of their time stamps; sessions are numbered by
    their first appearance in time."""
    ordered = sorted(turns, key=lambda turn: turn.at or "")
    days = {at: n for n, at in enumerate(dict.fromkeys(turn.at for turn in ordered))}
    events: list[Event] = []
    introductions: list[Introduction] = []
    for turn in ordered:
        if turn.role != "user":
            continue
        for sentence in _SENTENCE_END.split(turn.text):
            heard = _SOURCE.match(sentence)
            for attribute, groups in read_sentence(sentence[heard.end() :] if heard else sentence):
                day = days[turn.at]
                if not attribute:
                    introductions.append(Introduction(groups["name"], groups["relation"], day))
                    continue
                who = _who(groups["who"], user)
                source = heard["source"] if heard else None
                events.append(Event(who, attribute, groups["value"], day, source))
    return EventLog(user, tuple(events), tuple(introductions))


def _who(words: str, user: str) -> str:
    return user if words in ("I", "me", "my", "My") else words.removesuffix("'s")
