"""Which HTTP attempts belong to one logical call, and how often a body was asked before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

RETRY_HEADERS = ("x-stainless-retry-count", "x-retry-count", "x-retry-attempt")
"""Headers by which client libraries say that they are sending a request again."""


def retry_count(headers: Mapping[str, str]) -> int | None:
    """What the client library says: 0 for a first attempt, None when it says nothing."""
    for name in RETRY_HEADERS:
        value = headers.get(name, "")
        if value.isdecimal():
            return int(value)
    return None


@dataclass(slots=True)
class Logical:
    """One request as its application sees it: a first attempt and the client's own retries."""

    logical_id: str
    occurrence: int
    """How many logical calls of the same unit had the same body before.

    Counted per unit, so that a unit done again after a kill draws the same seeds.
    """
    attempts: int = 1
    state: Literal["open", "failed", "done"] = "open"
    """Of the last attempt."""


@dataclass(slots=True)
class Attempts:
    """The logical calls of one scope by body hash."""

    _by_body: dict[str, list[Logical]] = field(default_factory=dict)
    _asked: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    """Logical calls by body and unit: constant time, however often a body comes again."""

    def begin(
        self, body_hash: str, retries: int | None, call_id: str, unit: str | None = None
    ) -> Logical:
        """The logical call that this attempt belongs to, a new one if it is no retry."""
        same = self._by_body.setdefault(body_hash, [])
        earlier = _retried(same, retries) if retries else None
        if earlier is None:
            earlier = Logical(call_id, occurrence=self._asked[body_hash, unit])
            self._asked[body_hash, unit] += 1
            same.append(earlier)
        else:
            earlier.attempts += 1
            earlier.state = "open"
        return earlier


def _retried(same: list[Logical], retries: int) -> Logical | None:
    """The call that had `retries` attempts so far, a failed one before one still running.

    A client that gave up waiting may send again before its disconnect is seen, and one that
    lost the end of a reply may repeat a call that looks done from here.
    """
    fitting = [one for one in same if one.attempts == retries]
    for state in ("failed", "open", "done"):
        for one in fitting:
            if one.state == state:
                return one
    return None
