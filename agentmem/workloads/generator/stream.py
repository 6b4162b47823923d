"""Picks that depend on the seed and a label only: same on every machine and Python version."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Stream:
    """An endless row of pseudo-random numbers, named by its labels (blake2b in counter mode)."""

    def __init__(self, *labels: object) -> None:
        self._key = "/".join(str(label) for label in labels).encode()
        self._count = 0

    def bits(self) -> int:
        """64 fresh bits."""
        self._count += 1
        block = self._key + b"#" + str(self._count).encode()
        return int.from_bytes(hashlib.blake2b(block, digest_size=8).digest(), "big")

    def below(self, bound: int) -> int:
        """A number from 0 to `bound` - 1 (bias below 2**-40 for the bounds used here)."""
        return self.bits() % bound

    def chance(self, share: float) -> bool:
        """True in about `share` of the calls."""
        return self.bits() < share * 2.0**64

    def pick(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """All items in another order."""
        rest = list(items)
        for last in range(len(rest) - 1, 0, -1):
            other = self.below(last + 1)
            rest[last], rest[other] = rest[other], rest[last]
        return rest
