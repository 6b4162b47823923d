"""`--fail-on`: conditions on a comparison, in a language small enough to read in one go.

    any worse                          any worse in mem0.construction
    construction.seconds > +20%        mem0.generation.tokens > 0
    observed construction.seconds > 20%

A path is `[[system.]phase.]quantity`, `*` stands for any system or phase. With `%` the change
relative to A is meant (for scores: percentage points), without it the difference per pair.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentmem.analysis.compare import Line
from agentmem.analysis.compare_metrics import NAMES, ROOMS
from agentmem.errors import UsageError, nearest

VERDICTS = ("worse", "better", "not-comparable")
_OPS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_ANY = re.compile(r"any\s+(\S+)(?:\s+in\s+(\S+))?")
_LIMIT = re.compile(r"(observed\s+)?([^\s<>=]+)\s*([<>]=?)\s*([+-]?\d{1,15}(?:\.\d{1,15})?)\s*(%?)")
_LONGEST = 200
Names = Sequence[str] | None
"""Known names; None accepts any."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which rows a condition is about; None matches any."""

    system: str | None
    room: str | None
    metric: str | None

    def holds(self, line: Line) -> bool:
        wanted = (self.system, self.room, self.metric)
        got = (line.system, line.metric.room, line.metric.name)
        return all(w in (None, g) for w, g in zip(wanted, got, strict=True))


@dataclass(frozen=True, slots=True)
class Rule:
    """One parsed condition: either a verdict that must not occur, or a limit."""

    text: str
    place: Place
    verdict: str | None = None
    op: str = ">"
    limit: float = 0.0
    relative: bool = False
    observed: bool = False
    """Judge by the value itself, not by the interval around it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a condition."""

    rule: Rule
    fired: tuple[Line, ...]
    undecided: tuple[Line, ...]
    """Rows it is about that cannot be compared."""
    asked: int
    """Rows it could be decided on."""


def parse(text: str, systems: Names = None) -> Rule:
    """Read one condition; UsageError, in one line, for anything else.

    Without `systems` any name is taken for one.
    """
    words = " ".join(text.split())
    if len(words) <= _LONGEST:
        if found := _ANY.fullmatch(words):
            return _verdict_rule(words, found[1], found[2], systems)
        if found := _LIMIT.fullmatch(words):
            observed, path, op, number, percent = found.groups()
            limit = float(number) / (100 if percent else 1)
            place = _place(words, path, systems)
            return Rule(words, place, None, op, limit, bool(percent), bool(observed))
    raise _wrong(words, "expected e.g. `any worse` or `construction.seconds > +20%`")


def _wrong(words: str, why: str) -> UsageError:
    shown = words if len(words) <= 60 else f"{words[:57]}..."
    return UsageError(f"--fail-on {shown!r}: {why}")


def _verdict_rule(
    words: str, verdict: str, path: str | None, systems: Sequence[str] | None
) -> Rule:
    if verdict not in VERDICTS:
        raise _wrong(words, f"no verdict {verdict!r}; {nearest(verdict, list(VERDICTS))}")
    place = _region(words, path, systems) if path else Place(None, None, None)
    return Rule(words, place, verdict)


def _region(words: str, path: str, systems: Names) -> Place:
    """Path after `in`: a phase, a system, `system.phase`, or a whole path."""
    if path in ROOMS:
        return Place(None, path, None)
    if systems is None or path in systems:
        return Place(path, None, None)
    head, _, tail = path.rpartition(".")
    if tail in ROOMS and head:
        return Place(_known(words, "system", head, systems), tail, None)
    return _place(words, path, systems)


def _place(words: str, path: str, systems: Names) -> Place:
    *front, metric = path.split(".")
    system, room = None, None
    if front:
        room = _known(words, "phase", front[-1], ROOMS)
        system = _known(words, "system", ".".join(front[:-1]), systems) if front[1:] else None
    return Place(system, room, _known(words, "quantity", metric, NAMES))


def _known(words: str, what: str, name: str, names: Names) -> str | None:
    if name == "*":
        return None
    if names is not None and name not in names:
        raise _wrong(words, f"no {what} {name!r}; {nearest(name, list(names))}")
    return name


def outcome(rule: Rule, lines: Sequence[Line]) -> Outcome:
    """Judge a condition on all rows it is about."""
    mine = [line for line in lines if rule.place.holds(line)]
    barred = [line for line in mine if line.judged.verdict == "not comparable"]
    if rule.verdict == "not-comparable":
        return Outcome(rule, tuple(barred), (), len(mine))
    judged = [line for line in mine if line.judged.verdict != "not comparable"]
    unsaid = [line for line in judged if rule.verdict is None and _value(rule, line) is None]
    decided = [line for line in judged if line not in unsaid]
    fired = tuple(line for line in decided if _fires(rule, line))
    return Outcome(rule, fired, tuple(barred + unsaid), len(decided))


def _fires(rule: Rule, line: Line) -> bool:
    if rule.verdict is not None:
        return line.judged.verdict == rule.verdict
    value = _value(rule, line)
    return value is not None and _OPS[rule.op](value, rule.limit)


def _value(rule: Rule, line: Line) -> float | None:
    """The value to hold against the limit: the end of the interval nearest to it, or the point."""
    judged, score = line.judged, line.metric.group == "score"
    if rule.relative and not score:
        trio = (judged.change, judged.change_low, judged.change_high)
    else:
        trio = (judged.difference, judged.difference_low, judged.difference_high)
    point, low, high = trio
    # Counts have no noise: what was observed is what it is.
    if rule.observed or line.metric.exact or judged.verdict == "equal":
        return point
    return low if rule.op in (">", ">=") else high
