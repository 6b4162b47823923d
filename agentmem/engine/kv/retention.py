"""How long cached blocks are kept, and which one is given up first."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

MAX_TTL_S = 3600.0


@dataclass(frozen=True, slots=True)
class Retention:
    """A block is live for `ttl_s` after its last use. A preference only: nothing is promised.

    `budget_bytes` bounds what one session protects; what it has beyond is given up first, the
    longest unused first.
    """

    ttl_s: float = 300.0
    budget_bytes: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.ttl_s <= MAX_TTL_S:
            raise ValueError(f"ttl_s must lie in 0..{MAX_TTL_S:g}, not {self.ttl_s:g}")
        if self.budget_bytes is not None and self.budget_bytes < 0:
            raise ValueError("budget_bytes must not be negative")


class Shelf:
    """Cached blocks that nobody uses. Every operation takes constant time.

    Given up first: expired without a session, then expired with one, then live; the longest
    unused first within each. One time to live for all makes the order of use the order of
    expiry, so the heads of two queues decide.
    """

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self._plain: OrderedDict[int, float] = OrderedDict()
        self._tagged: OrderedDict[int, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._plain) + len(self._tagged)

    def __contains__(self, block: int) -> bool:
        return block in self._plain or block in self._tagged

    def put(self, block: int, now: float, *, tagged: bool) -> None:
        """Shelve a block just used, or move one that is here already."""
        self.remove(block)
        (self._tagged if tagged else self._plain)[block] = now

    def demote(self, block: int) -> None:
        """Make a block that lost its last session the first to go."""
        if block in self:
            self.remove(block)
            self._plain[block] = float("-inf")
            self._plain.move_to_end(block, last=False)

    def remove(self, block: int) -> None:
        """Take a block off, if it is here."""
        if self._plain.pop(block, None) is None:
            self._tagged.pop(block, None)

    def pop(self, now: float) -> int:
        """Give up one block. KeyError when there is none."""
        plain, tagged = _head(self._plain), _head(self._tagged)
        dead = now - self._ttl_s
        if plain <= dead or (tagged > dead and plain <= tagged):
            return (self._plain or self._tagged).popitem(last=False)[0]
        return (self._tagged or self._plain).popitem(last=False)[0]


def _head(queue: OrderedDict[int, float]) -> float:
    return next(iter(queue.values())) if queue else float("inf")
