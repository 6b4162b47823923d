"""What is cached: which blocks answer a prompt, and how new ones come to be found."""

from __future__ import annotations

from collections.abc import Sequence

from agentmem.engine.kv import chain
from agentmem.engine.kv.blocks import BlockPool
from agentmem.engine.kv.layout import NULL_BLOCK
from agentmem.engine.kv.registry import Session
from agentmem.engine.kv.tables import Group, Holding


class Library:
    """The cached blocks of all groups under one hash chain."""

    def __init__(self, groups: Sequence[Group], index: chain.ChainIndex, block_size: int) -> None:
        self._groups = groups
        self._pools = [group.pool for group in groups]
        self._index = index
        self._size = block_size

    def match(self, root: bytes, tokens: Sequence[int]) -> tuple[list[bytes], int, bytes]:
        """Keys of the longest hit that all groups can serve, its tokens, its encoded tail."""
        size, width = self._size, self._size * chain.TOKEN_BYTES
        encoded = chain.encode(tokens[: max(0, len(tokens) - 1)])
        needed = [group.pool for group in self._groups if group.contiguous]
        keys: list[bytes] = []
        parent = root
        for start in range(0, len(encoded) - width + 1, width):
            key = chain.link(parent, encoded[start : start + width])
            if any(pool.find(key) is None for pool in needed):
                break
            keys.append(key)
            parent = key
        partial = self._continuation(root, keys, encoded)
        if partial is None:
            # No hit ends with a block that a group lacks: look where the last whole one ends.
            while keys and any(pool.find(keys[-1]) is None for pool in self._pools):
                keys.pop()
            partial = self._continuation(root, keys, encoded)
        reached = len(keys) * size
        rest = encoded[len(keys) * width : (len(keys) + 1) * width]
        if partial is not None:
            keys.append(partial.key)
            reached += partial.tokens
        before = -1
        while reached != before:
            before = reached
            for group in self._groups:
                reached = group.reach(keys, reached)
        return keys, reached, rest[: (reached % size) * chain.TOKEN_BYTES]

    def _continuation(self, root: bytes, keys: list[bytes], encoded: bytes) -> chain.Partial | None:
        """A cached block that shares the first of the tokens behind `keys`."""
        width = self._size * chain.TOKEN_BYTES
        rest = encoded[len(keys) * width : (len(keys) + 1) * width]
        return self._index.partial(keys[-1] if keys else root, rest)

    def publish(self, holding: Holding, part: bytes, now: float) -> None:
        """Let the next full block be found, in every group that holds it."""
        parent, at = holding.parent, len(holding.keys)
        key = chain.link(parent, part)
        holding.keys.append(key)
        for pool, table in zip(self._pools, holding.tables, strict=True):
            if table[at] != NULL_BLOCK:
                self.show(pool, table[at], key, parent, part)
        self.tag_key(holding.session, key, now)

    def publish_tail(self, holding: Holding, now: float) -> None:
        """Let a half-filled last block be found, unless what is cached covers it."""
        at, tail = len(holding.keys), holding.tail
        if not tail or holding.copies:
            return
        covered = self._index.partial(holding.parent, tail)
        if covered is not None and covered.tokens * chain.TOKEN_BYTES == len(tail):
            self.tag_key(holding.session, covered.key, now)
            return
        key = chain.link(holding.parent, tail)
        for pool, table in zip(self._pools, holding.tables, strict=True):
            self.show(pool, table[at], key, holding.parent, tail)
        self.tag_key(holding.session, key, now)

    def show(self, pool: BlockPool, block: int, key: bytes, parent: bytes, part: bytes) -> None:
        """Let one block be found; a shorter end that it covers goes."""
        covered = self._index.add(key, parent, part) if pool.publish(block, key) else None
        if covered is None:
            return
        for other in self._pools:
            if (found := other.find(covered)) is not None:
                other.forget(found)

    def tag(self, pool: BlockPool, block: int | None, session: Session | None, now: float) -> None:
        """Note the use of a block that can be found by a session that lives."""
        live = session is not None and not session.dropped
        if session is not None and live and block is not None and pool.keys[block] is not None:
            pool.tag(block, session, now)

    def tag_key(self, session: Session | None, key: bytes, now: float) -> None:
        """The same for whatever block each group has under the key."""
        for pool in self._pools:
            self.tag(pool, pool.find(key), session, now)
