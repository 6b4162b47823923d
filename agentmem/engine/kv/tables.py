"""Block tables: what one sequence holds in each group, and how a group gives and takes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from agentmem.engine.kv.blocks import BlockPool
from agentmem.engine.kv.layout import NULL_BLOCK
from agentmem.engine.kv.registry import Session


class Copy(NamedTuple):
    """Block `src` of a group to be copied to `dst` before the next pass."""

    group: int
    src: int
    dst: int


@dataclass(slots=True, eq=False)
class Holding:
    """What one running sequence holds. Read by everyone, changed by the manager only."""

    root: bytes
    session: Session | None
    cached: int
    """Tokens that the cache served."""
    length: int
    """Positions that are valid."""
    tables: list[list[int]]
    keys: list[bytes]
    """One for each full block."""
    tail: bytes = b""
    """Encoded tokens behind the last full block."""
    copies: list[Copy] = field(default_factory=list)
    """To be done in this order before the next pass; emptied by `commit`."""
    trimmed: int = 0
    """Positions at which windows were last moved on."""
    counted: bool = False
    queried: int = 0
    closed: bool = False

    @property
    def parent(self) -> bytes:
        """Key of all its full blocks."""
        return self.keys[-1] if self.keys else self.root


class Group(Protocol):
    """Layers that keep the same state per position, and the rules by which it is shared."""

    pool: BlockPool
    contiguous: bool
    """Whether one missing block ends every hit."""

    def reach(self, keys: Sequence[bytes], positions: int) -> int:
        """The longest hit within `positions`: all of them, or a multiple of the block size."""

    def attach(self, keys: Sequence[bytes], positions: int) -> list[int]:
        """The table of a hit, its blocks pinned."""

    def trim(self, table: list[int], length: int, now: float) -> None:
        """Give back what the token at position `length` and later ones do not see."""

    def wanted(self, table: list[int], length: int, positions: int) -> int:
        """How many fresh blocks it takes to write positions from `length` up to `positions`."""

    def extend(self, table: list[int], length: int, positions: int, now: float) -> Copy | None:
        """Take those blocks. The source of a copy keeps its pin until the copy is done."""


class PagedGroup:
    """Keys and values of attention layers, all positions or the last `window` of them."""

    def __init__(self, pool: BlockPool, block_size: int, window: int | None) -> None:
        self.pool = pool
        self.contiguous = window is None
        self._size = block_size
        self._window = window

    def reach(self, keys: Sequence[bytes], positions: int) -> int:
        """See Group. Walks back from the end; a missing block moves the end before it."""
        block = _blocks(positions, self._size) - 1
        while positions > 0:
            first = self._first(positions)
            while block >= first and self.pool.find(keys[block]) is not None:
                block -= 1
            if block < first:
                break
            positions = block * self._size
            block -= 1
        return positions

    def attach(self, keys: Sequence[bytes], positions: int) -> list[int]:
        """See Group."""
        first = self._first(positions)
        table = [NULL_BLOCK] * first
        for key in keys[first : _blocks(positions, self._size)]:
            block = self.pool.find(key)
            assert block is not None
            self.pool.pin(block)
            table.append(block)
        return table

    def trim(self, table: list[int], length: int, now: float) -> None:
        """See Group. Walks back over what was not yet given back only."""
        block = min(self._first(length), len(table)) - 1
        while block >= 0 and table[block] != NULL_BLOCK:
            self.pool.release(table[block], now)
            table[block] = NULL_BLOCK
            block -= 1

    def wanted(self, table: list[int], length: int, positions: int) -> int:
        """See Group."""
        fresh = max(0, -(-positions // self._size) - len(table))
        return fresh + (positions > length and self._shared_end(table, length))

    def extend(self, table: list[int], length: int, positions: int, now: float) -> Copy | None:
        """See Group."""
        copy = None
        if positions > length and self._shared_end(table, length):
            at = length // self._size
            copy = Copy(self.pool.number, table[at], self.pool.take(now))
            table[at] = copy.dst
        while len(table) < _blocks(positions, self._size):
            table.append(self.pool.take(now))
        return copy

    def _shared_end(self, table: list[int], length: int) -> bool:
        """Whether the block half filled by `length` positions belongs to others too."""
        at = length // self._size
        if not length % self._size or at >= len(table):
            return False
        block = table[at]
        return self.pool.refs[block] > 1 or self.pool.keys[block] is not None

    def _first(self, positions: int) -> int:
        """The first block that the token at position `positions` sees."""
        if self._window is None:
            return 0
        return max(0, positions - self._window + 1) // self._size


def _blocks(positions: int, size: int) -> int:
    return -(-positions // size)
