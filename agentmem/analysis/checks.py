"""The accounting rules R1-R11, each proven or refuted on a run folder (`agentmem check`)."""

from __future__ import annotations

from functools import lru_cache

from agentmem.analysis import check_books, check_calls
from agentmem.analysis.load import Run
from agentmem.analysis.verdict import Check, Examine

MAX_NAMED = 5
"""Faults spelled out in a detail; the rest are counted."""


@lru_cache(maxsize=4)  # a report asks twice
def check_run(run: Run) -> tuple[Check, ...]:
    """All rules, in order."""
    rules = {**check_calls.RULES, **check_books.RULES}
    ordered = sorted(rules, key=lambda rule: int(rule[1:]))
    return tuple(_verdict(rule, *rules[rule], run) for rule in ordered)


def _verdict(rule: str, title: str, examine: Examine, run: Run) -> Check:
    found = examine(run)
    if found.faults:
        named = "; ".join(found.faults[:MAX_NAMED])
        more = len(found.faults) - MAX_NAMED
        tail = f"; and {more} more" if more > 0 else ""
        return Check(rule, title, False, named + tail)
    return Check(rule, title, True if found.provable else None, found.looked_at)


def failed(checks: tuple[Check, ...]) -> tuple[Check, ...]:
    return tuple(check for check in checks if check.ok is False)
