"""The blocks of one group: who uses them, what they hold, which one is next to go."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from agentmem.engine.kv.layout import NULL_BLOCK
from agentmem.engine.kv.registry import Session
from agentmem.engine.kv.retention import Shelf


class PoolCounts(NamedTuple):
    """Blocks in use, cached and unused, and free; the null block is none of them."""

    used: int
    cached: int
    free: int


class BlockPool:
    """Reference counts, keys and session tags of `blocks` blocks; block 0 is never given out.

    Every operation takes constant time. `on_lost` hears of each key that is cached no more.
    """

    def __init__(
        self,
        number: int,
        blocks: int,
        block_bytes: int,
        ttl_s: float,
        on_lost: Callable[[bytes], None],
    ) -> None:
        self.number = number
        self.block_bytes = block_bytes
        self.evictions = 0
        self.refs = [0] * blocks
        self.keys: list[bytes | None] = [None] * blocks
        self._owners: list[set[Session] | None] = [None] * blocks
        # The last block freed is the next given out: memory once touched is used again.
        self._free = list(range(blocks - 1, NULL_BLOCK, -1))
        self._by_key: dict[bytes, int] = {}
        self._shelf = Shelf(ttl_s)
        self._on_lost = on_lost

    @property
    def available(self) -> int:
        """Blocks that can be taken now."""
        return len(self._free) + len(self._shelf)

    @property
    def counts(self) -> PoolCounts:
        """How the blocks divide."""
        cached, free = len(self._shelf), len(self._free)
        return PoolCounts(len(self.refs) - 1 - cached - free, cached, free)

    def find(self, key: bytes) -> int | None:
        """The block that holds what the key names."""
        return self._by_key.get(key)

    def take(self, now: float) -> int:
        """A block to write, used once. The caller knows that one is available."""
        if not self._free:
            self.forget(self._shelf.pop(now))
            self.evictions += 1
        block = self._free.pop()
        self.refs[block] = 1
        return block

    def pin(self, block: int) -> None:
        """One more user."""
        if not self.refs[block]:
            self._shelf.remove(block)
        self.refs[block] += 1

    def release(self, block: int, now: float) -> None:
        """One user less; the last one leaves it cached where it has a key, else free."""
        self.refs[block] -= 1
        if self.refs[block]:
            return
        if self.keys[block] is None:
            self._free.append(block)
        else:
            self._shelf.put(block, now, tagged=bool(self._owners[block]))

    def publish(self, block: int, key: bytes) -> bool:
        """Let the block be found under the key; False when it or another one already can be."""
        if key in self._by_key or self.keys[block] is not None:
            return False
        self._by_key[key] = block
        self.keys[block] = key
        return True

    def forget(self, block: int) -> None:
        """Take away its key and tags; an unused block becomes free."""
        key = self.keys[block]
        if key is None:
            return
        for session in tuple(self._owners[block] or ()):
            self.untag(block, session)
        self.keys[block] = None
        del self._by_key[key]
        if not self.refs[block]:
            self._shelf.remove(block)
            self._free.append(block)
        self._on_lost(key)

    def orphaned(self, block: int) -> bool:
        """Whether nobody uses it and no session has it."""
        return not self.refs[block] and not self._owners[block]

    def tag(self, block: int, session: Session, now: float) -> None:
        """Note that the session used a block with a key just now."""
        if not self.refs[block]:
            self._shelf.put(block, now, tagged=True)
        if (self.number, block) in session.blocks:
            session.blocks.move_to_end((self.number, block))
            return
        owners = self._owners[block]
        if owners is None:
            owners = self._owners[block] = set()
        if len(owners) == 1:
            next(iter(owners)).bytes_unique -= self.block_bytes
        owners.add(session)
        session.blocks[self.number, block] = None
        session.bytes_held += self.block_bytes
        if len(owners) == 1:
            session.bytes_unique += self.block_bytes

    def untag(self, block: int, session: Session) -> None:
        """Take a session's tag off; without any, an unused block is the first to go."""
        owners = self._owners[block]
        if owners is None or session not in owners:
            return
        owners.remove(session)
        del session.blocks[self.number, block]
        session.bytes_held -= self.block_bytes
        if not owners:
            session.bytes_unique -= self.block_bytes
            self._owners[block] = None
            self._shelf.demote(block)
        elif len(owners) == 1:
            next(iter(owners)).bytes_unique += self.block_bytes
