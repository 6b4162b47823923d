"""Drafts from the text itself: what followed the last time these tokens stood here."""

from __future__ import annotations

from collections.abc import Sequence

_LONG, _SHORT = 5, 3
"""Tokens that must agree. The longer match is tried first."""
_FIRST, _MOST = 4, 15
"""Tokens of the first draft of a request, and of the longest."""
_REST = 8
"""Steps without drafts after the first failure; four times as many after each further one."""
_LONGEST_REST = 512


class Lookup:
    """Finds where the last tokens of a sequence stood before. Constant time a token.

    `tokens` is the sequence itself, and only ever grows.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = tokens
        self._known = 0
        self._places: tuple[dict[tuple[int, ...], int], ...] = ({}, {})

    def find(self, count: int) -> list[int]:
        """The `count` tokens that followed then, or none; a repetition goes on as it began."""
        self._catch_up()
        tokens, end = self._tokens, len(self._tokens)
        for length, places in zip((_LONG, _SHORT), self._places, strict=True):
            if end < length:
                continue
            at = places.get(tuple(tokens[end - length :]))
            if at is not None:
                period = end - at
                return [tokens[at + i % period] for i in range(count)]
        return []

    def _catch_up(self) -> None:
        """Note, for each token since, what stood before it: an n-gram's last place wins."""
        tokens = self._tokens
        for length, places in zip((_LONG, _SHORT), self._places, strict=True):
            for at in range(max(length, self._known), len(tokens)):
                places[tuple(tokens[at - length : at])] = at
        self._known = len(tokens)


class Drafter:
    """One request's drafts: longer while they are accepted, ever rarer while they are not.

    Nothing here depends on time, so that a request drafts the same whenever it runs.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        self._lookup = Lookup(tokens)
        self._length = _FIRST
        self._rest = 0
        self._failures = 0

    def propose(self, most: int) -> list[int]:
        """Up to `most` tokens that may come next; asked once a step."""
        if self._rest > 0:
            self._rest -= 1
            return []
        count = min(self._length, most)
        return self._lookup.find(count) if count > 0 else []

    def learn(self, drafted: int, accepted: int) -> None:
        """How many of the last draft were what the model says."""
        if accepted == 0:
            self._rest = min(_REST * 4**self._failures, _LONGEST_REST)
            self._failures = min(self._failures + 1, 8)
            self._length = 2
        elif accepted == drafted:
            self._failures = 0
            self._length = min(2 * max(drafted, self._length), _MOST)
        else:
            # a draft that was right for a while is worth the next one of that length
            self._failures = 0
            self._length = max(2, accepted + 1)
