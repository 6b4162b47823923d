"""Blocks for state that comes from elsewhere: taken all at once or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentmem.engine.kv import chain
from agentmem.engine.kv.manager import KVManager
from agentmem.errors import DataError


class Node(NamedTuple):
    """A block's tokens, and the index of the node they continue (-1: they begin a sequence)."""

    parent: int
    tokens: tuple[int, ...]


class Taken(NamedTuple):
    """A block to be filled with the state of a node."""

    node: int
    block: int


class Adoption:
    """Blocks of one import, in use until `publish` or `abandon`. Parents come before children.

    `fresh[group]` are the blocks to fill; what the cache has already is only kept from going.
    DataError, with nothing taken, when there is no room beside what runs.
    """

    def __init__(
        self,
        kv: KVManager,
        tenant: str | None,
        nodes: Sequence[Node],
        present: Sequence[Sequence[int]],
    ) -> None:
        self._kv = kv
        self._nodes = nodes
        root = chain.root(kv.identity, tenant)
        self._parents: list[bytes] = []
        self._keys: list[bytes] = []
        for node in nodes:
            self._parents.append(root if node.parent < 0 else self._keys[node.parent])
            self._keys.append(chain.link(self._parents[-1], chain.encode(node.tokens)))
        self.fresh: list[list[Taken]] = [[] for _ in kv.pools]
        self._pinned: list[list[int]] = [[] for _ in kv.pools]
        with kv.lock:
            missing = self._pin(present)
            for pool, wanted in zip(kv.pools, missing, strict=True):
                if len(wanted) > pool.available:
                    room = pool.available
                    self.abandon()
                    raise DataError(f"no room: {len(wanted)} blocks wanted, {room} can be had")
            now = kv.clock()
            for pool, wanted in zip(kv.pools, missing, strict=True):
                self.fresh[pool.number] = [Taken(node, pool.take(now)) for node in wanted]

    def publish(self, tenant: str | None, session_id: str) -> None:
        """The blocks are filled: let them be found, and give them to the session."""
        kv = self._kv
        with kv.lock:
            now = kv.clock()
            session = kv.enter(tenant, session_id, now)
            for pool, taken in zip(kv.pools, self.fresh, strict=True):
                for node, block in taken:
                    kv.library.show(
                        pool,
                        block,
                        self._keys[node],
                        self._parents[node],
                        chain.encode(self._nodes[node].tokens),
                    )
            for key in reversed(self._keys):
                kv.library.tag_key(session, key, now)
            session.running -= 1
            self.abandon()

    def abandon(self) -> None:
        """Give everything back; what was not published is free."""
        with self._kv.lock:
            now = self._kv.clock()
            for pool, taken, pinned in zip(self._kv.pools, self.fresh, self._pinned, strict=True):
                for block in [*reversed([t.block for t in taken]), *reversed(pinned)]:
                    pool.release(block, now)
                taken.clear()
                pinned.clear()

    def _pin(self, present: Sequence[Sequence[int]]) -> list[list[int]]:
        """Keep what is cached; gives the nodes that each group lacks."""
        missing: list[list[int]] = []
        for pool, nodes, pinned in zip(self._kv.pools, present, self._pinned, strict=True):
            missing.append([])
            for node in nodes:
                block = pool.find(self._keys[node])
                if block is None:
                    missing[-1].append(node)
                else:
                    pool.pin(block)
                    pinned.append(block)
        return missing
