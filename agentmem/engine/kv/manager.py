"""Who holds which blocks: prefix hits, growth, publication, sessions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from agentmem.engine.kv import chain
from agentmem.engine.kv.blocks import BlockPool, PoolCounts
from agentmem.engine.kv.layout import BLOCK_SIZE, NULL_BLOCK, GroupSpec
from agentmem.engine.kv.library import Library
from agentmem.engine.kv.registry import Registry, Session, SessionStats
from agentmem.engine.kv.retention import Retention
from agentmem.engine.kv.tables import Group, Holding, PagedGroup

MAX_SESSIONS = 10_000


class KVCounts(NamedTuple):
    """The manager at one moment, over all groups; tokens and evictions since it was made."""

    used_blocks: int
    cached_blocks: int
    free_blocks: int
    used_bytes: int
    cached_bytes: int
    queried_tokens: int
    hit_tokens: int
    evictions: int
    sessions: int


class KVManager:
    """Blocks of all groups, shared by prefix.

    `blocks` is per group and includes the null block. `block_bytes` is one figure per group
    (KVPages.block_bytes; two bytes a number where not given). One thread changes holdings;
    counts and sessions may be asked from any. A sequence's life: open, then per step grow,
    do `holding.copies`, run, commit; close. A table's entries change in `grow` only.

    Nothing here knows when a request begins or ends (one may be opened several times):
    `record` tells it, once per request.
    """

    def __init__(
        self,
        groups: tuple[GroupSpec, ...],
        *,
        blocks: int,
        block_size: int = BLOCK_SIZE,
        identity: bytes = b"",
        retention: Retention | None = None,
        block_bytes: Sequence[int] = (),
        clock: Callable[[], float] = time.monotonic,
        max_sessions: int = MAX_SESSIONS,
    ) -> None:
        self.specs = groups
        self.block_size = block_size
        self.identity = identity
        self.retention = retention or Retention()
        self.index = chain.ChainIndex(len(groups))
        sizes = tuple(block_bytes) or tuple(_bytes(spec, block_size) for spec in groups)
        self.pools = tuple(
            BlockPool(i, blocks, size, self.retention.ttl_s, self.index.remove)
            for i, size in enumerate(sizes)
        )
        self.groups: tuple[Group, ...] = tuple(
            PagedGroup(pool, block_size, spec.window)
            for pool, spec in zip(self.pools, groups, strict=True)
        )
        self._windowed = not all(group.contiguous for group in self.groups)
        self.library = Library(self.groups, self.index, block_size)
        self.clock = clock
        self.lock = threading.RLock()
        self._registry = Registry(max_sessions)
        self._unix_offset_s = time.time() - clock()
        self._queried = 0
        self._hit = 0

    # --- a sequence's life

    def open(
        self,
        tokens: Sequence[int],
        *,
        tenant: str | None,
        session: str | None,
        reuse: bool = True,
    ) -> Holding:
        """Pin the longest cached prefix of `tokens`, all but the last at most."""
        root = chain.root(self.identity, tenant)
        with self.lock:
            now = self.clock()
            keys, cached, tail = self.library.match(root, tokens) if reuse else ([], 0, b"")
            tables = [group.attach(keys, cached) for group in self.groups]
            owner = None if session is None else self.enter(tenant, session, now)
            for pool, table in zip(self.pools, tables, strict=True):
                for block in table:
                    if block != NULL_BLOCK:
                        self.library.tag(pool, block, owner, now)
            full = cached // self.block_size
            return Holding(
                root,
                owner,
                cached,
                cached,
                tables,
                keys[:full],
                tail,
                trimmed=cached,
                queried=len(tokens),
            )

    def grow(self, holding: Holding, positions: int) -> bool:
        """Blocks for positions up to here in all groups; False, changing nothing, without room.

        A half-filled block that others share is replaced: see `holding.copies`.
        """
        length = holding.length
        with self.lock:
            now = self.clock()
            if self._windowed:
                holding.trimmed = length
                for group, table in zip(self.groups, holding.tables, strict=True):
                    group.trim(table, length, now)
            wanted = [
                group.wanted(table, length, positions)
                for group, table in zip(self.groups, holding.tables, strict=True)
            ]
            # Most steps end here: the token goes into a block that is there.
            if not any(wanted):
                return True
            if any(n > pool.available for n, pool in zip(wanted, self.pools, strict=True)):
                return False
            for group, table in zip(self.groups, holding.tables, strict=True):
                copy = group.extend(table, length, positions, now)
                if copy is not None:
                    holding.copies.append(copy)
            return True

    def commit(self, holding: Holding, tokens: Sequence[int], length: int) -> None:
        """After the pass: positions [0, length) hold the state of `tokens`; full blocks show.

        `tokens` is the whole sequence, at least `length` long.
        """
        size = self.block_size
        done, full = len(holding.keys), length // size
        if length < holding.length or min(map(len, holding.tables)) * size < length:
            raise ValueError(f"cannot commit {length} positions after {holding.length}")
        with self.lock:
            if holding.copies:
                self._settle(holding, self.clock())
            if full > done:
                now = self.clock()
                parts = chain.encode(tokens[done * size : full * size])
                width = size * chain.TOKEN_BYTES
                for at in range(full - done):
                    self.library.publish(holding, parts[at * width : (at + 1) * width], now)
            holding.tail = chain.encode(tokens[full * size : length])
            holding.length = length
            if not holding.counted:
                holding.counted = True
                self._queried += holding.queried
                self._hit += holding.cached

    def rewind(self, holding: Holding, length: int) -> None:
        """Drop positions from `length` on, and blocks grown for later ones.

        ValueError for a position inside a full block that was committed, or before the last
        `grow` where a window has moved on since.
        """
        size = self.block_size
        least = max(len(holding.keys) * size, holding.trimmed if self._windowed else 0)
        if not least <= length <= holding.length:
            raise ValueError(f"cannot rewind to {length} of {holding.length} positions")
        keep = -(-length // size)
        with self.lock:
            now = self.clock()
            for number, table in enumerate(holding.tables):
                while len(table) > keep:
                    self._give_back(holding, number, table.pop(), now)
            holding.tail = holding.tail[: (length % size) * chain.TOKEN_BYTES]
            holding.length = length

    def fork(self, holding: Holding) -> Holding:
        """Another holding of the same valid positions; whoever writes first copies."""
        with self.lock:
            keep = -(-holding.length // self.block_size)
            tables = [table[:keep] for table in holding.tables]
            for group, table in zip(self.groups, tables, strict=True):
                for block in table:
                    if block != NULL_BLOCK:
                        group.pool.pin(block)
            if holding.session is not None:
                holding.session.running += 1
            return Holding(
                holding.root,
                holding.session,
                holding.length,
                holding.length,
                tables,
                list(holding.keys),
                holding.tail,
                trimmed=holding.trimmed,
                counted=True,
            )

    def close(self, holding: Holding, *, keep: bool = True) -> None:
        """Give everything back. What has a key stays cached for its session.

        Without `keep`, what this sequence computed goes, unless someone else has it.
        """
        if holding.closed:
            return
        holding.closed = True
        with self.lock:
            now = self.clock()
            session = holding.session
            if session is not None:
                session.running -= 1
            gone = session is not None and session.dropped
            if keep and not gone:
                self.library.publish_tail(holding, now)
            self._settle(holding, now)
            kept = len(holding.tables[0])
            if gone:
                kept = 0
            elif not keep and holding.length > holding.cached:
                kept = holding.cached // self.block_size
            self._retire(holding, kept, now)
            if session is not None and not gone:
                session.last_use_s = now
                self._hold_to_budget(session)

    def table(self, holding: Holding, group: int) -> list[int]:
        """The block of each `block_size` positions; the list itself, not to be changed."""
        return holding.tables[group]

    def slots(self, holding: Holding, group: int, start: int, stop: int) -> list[int]:
        """Where positions [start, stop) lie: block * block_size + offset."""
        table, size = holding.tables[group], self.block_size
        return [table[p // size] * size + p % size for p in range(start, stop)]

    # --- what is there

    @property
    def capacity(self) -> int:
        """Positions that one sequence alone could hold in the groups that keep all of them."""
        full = [g.pool for g in self.groups if g.contiguous] or list(self.pools)
        return min(len(pool.refs) - 1 for pool in full) * self.block_size

    def counts(self) -> KVCounts:
        """Blocks, tokens, evictions, sessions."""
        with self.lock:
            each = [pool.counts for pool in self.pools]
            return KVCounts(
                sum(c.used for c in each),
                sum(c.cached for c in each),
                sum(c.free for c in each),
                sum(c.used * p.block_bytes for c, p in zip(each, self.pools, strict=True)),
                sum(c.cached * p.block_bytes for c, p in zip(each, self.pools, strict=True)),
                self._queried,
                self._hit,
                sum(pool.evictions for pool in self.pools),
                len(self._registry),
            )

    def pool_counts(self, group: int) -> PoolCounts:
        """Blocks of one group."""
        with self.lock:
            return self.pools[group].counts

    # --- sessions

    def record(
        self,
        tenant: str | None,
        session: str | None,
        *,
        cached: int = 0,
        computed: int = 0,
        generated: int = 0,
    ) -> None:
        """Count one request of a session, in tokens; nothing where the session was dropped."""
        with self.lock:
            known = None if session is None else self._registry.get(tenant, session)
            if known is not None:
                known.requests += 1
                known.cached_tokens += cached
                known.computed_tokens += computed
                known.generated_tokens += generated

    def sessions(self, tenant: str | None) -> list[SessionStats]:
        """A tenant's sessions."""
        with self.lock:
            return [s.stats(self._unix_offset_s) for s in self._registry.of_tenant(tenant)]

    def session(self, tenant: str | None, session_id: str) -> SessionStats | None:
        """One session; None when the tenant has none of that id."""
        with self.lock:
            known = self._registry.get(tenant, session_id)
            return None if known is None else known.stats(self._unix_offset_s)

    def known(self, tenant: str | None, session_id: str) -> Session | None:
        """The session itself; to be read and changed under `lock` only."""
        return self._registry.get(tenant, session_id)

    def drop(self, tenant: str | None, session_id: str) -> int:
        """Forget a session and free what nobody else has; gives the bytes freed at once.

        What its running requests use is freed when they close.
        """
        with self.lock:
            session = self._registry.get(tenant, session_id)
            if session is None:
                return 0
            freed = 0
            for group, block in self._untag_all(session):
                pool = self.pools[group]
                if pool.orphaned(block):
                    pool.forget(block)
                    freed += pool.block_bytes
            return freed

    # --- inside

    def _settle(self, holding: Holding, now: float) -> None:
        """Let go of the sources of copies, which are done or no longer wanted."""
        for copy in holding.copies:
            self.pools[copy.group].release(copy.src, now)
        holding.copies = []

    def _give_back(self, holding: Holding, group: int, block: int, now: float) -> None:
        """Release a block that was rewound, and a copy that was to fill it."""
        unwanted = [c for c in holding.copies if c.group == group and c.dst == block]
        if unwanted:
            holding.copies = [c for c in holding.copies if c not in unwanted]
            self.pools[group].release(unwanted[0].src, now)
        self.pools[group].release(block, now)

    def _retire(self, holding: Holding, kept: int, now: float) -> None:
        """Release all blocks, the last first so that beginnings stay longest.

        From block `kept` on, what no other sequence or session has is forgotten.
        """
        session = holding.session
        for pool, table in zip(self.pools, holding.tables, strict=True):
            for at in range(len(table) - 1, -1, -1):
                block = table[at]
                if block == NULL_BLOCK:
                    continue
                shown: int | None = block
                if pool.keys[block] is None and at < len(holding.keys):
                    shown = pool.find(holding.keys[at])
                if at < kept:
                    self.library.tag(pool, shown, session, now)
                elif session is not None:
                    pool.untag(block, session)
                pool.release(block, now)
                if at >= kept and pool.orphaned(block):
                    pool.forget(block)
            table.clear()

    def enter(self, tenant: str | None, session_id: str, now: float) -> Session:
        """The session of a request that begins; one too many is forgotten."""
        session = self._registry.use(tenant, session_id, now)
        session.running += 1
        surplus = self._registry.surplus()
        if surplus is not None:
            self._untag_all(surplus)
        return session

    def _untag_all(self, session: Session) -> list[tuple[int, int]]:
        """Forget a session; gives the blocks that had its tag."""
        self._registry.forget(session)
        tagged = list(session.blocks)
        for group, block in tagged:
            self.pools[group].untag(block, session)
        return tagged

    def _hold_to_budget(self, session: Session) -> None:
        """Take the tags off what a session has beyond its budget, the longest unused first."""
        budget = self.retention.budget_bytes
        while budget is not None and session.bytes_held > budget and session.blocks:
            group, block = next(iter(session.blocks))
            self.pools[group].untag(block, session)


def _bytes(spec: GroupSpec, block_size: int) -> int:
    return len(spec.layers) * 2 * spec.kv_heads * block_size * spec.head_dim * 2
