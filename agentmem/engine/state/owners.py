"""Sessions of cached state, by the rules that hold for keys and values."""

from __future__ import annotations

import time
from collections.abc import Callable

from agentmem.engine.kv.blocks import BlockPool
from agentmem.engine.kv.registry import Registry, Session, SessionStats
from agentmem.engine.kv.retention import Retention


class Owners:
    """Which session used which cached state, and what each of them did."""

    def __init__(
        self,
        pool: BlockPool,
        retention: Retention,
        clock: Callable[[], float],
        limit: int,
    ) -> None:
        self._pool = pool
        self._retention = retention
        self._registry = Registry(limit)
        self._unix_offset_s = time.time() - clock()

    def enter(self, tenant: str | None, session_id: str, now: float) -> Session:
        """The session of a sequence that begins; one too many is forgotten."""
        session = self._registry.use(tenant, session_id, now)
        session.running += 1
        surplus = self._registry.surplus()
        if surplus is not None:
            self._untag_all(surplus)
        return session

    def leave(self, session: Session, now: float) -> None:
        """A sequence of the session ends; what it protects beyond its budget goes first."""
        session.running -= 1
        if session.dropped:
            return
        session.last_use_s = now
        budget = self._retention.budget_bytes
        while budget is not None and session.bytes_held > budget and session.blocks:
            self._pool.untag(next(iter(session.blocks))[1], session)

    def tag(self, block: int | None, session: Session | None, now: float) -> None:
        """Note the use of a state that can be found by a session that lives."""
        if session is None or session.dropped or block is None:
            return
        if self._pool.keys[block] is not None:
            self._pool.tag(block, session, now)

    def drop(self, tenant: str | None, session_id: str) -> int:
        """Forget a session and free what nobody else has; gives the bytes freed at once."""
        session = self._registry.get(tenant, session_id)
        if session is None:
            return 0
        freed = 0
        for block in self._untag_all(session):
            if self._pool.orphaned(block):
                self._pool.forget(block)
                freed += self._pool.block_bytes
        return freed

    def record(
        self, tenant: str | None, session_id: str, cached: int, computed: int, generated: int
    ) -> None:
        """Count one request, in tokens; nothing where the session was dropped."""
        known = self._registry.get(tenant, session_id)
        if known is not None:
            known.requests += 1
            known.cached_tokens += cached
            known.computed_tokens += computed
            known.generated_tokens += generated

    def stats(self, tenant: str | None) -> list[SessionStats]:
        """A tenant's sessions."""
        return [s.stats(self._unix_offset_s) for s in self._registry.of_tenant(tenant)]

    def one(self, tenant: str | None, session_id: str) -> SessionStats | None:
        """One session; None when the tenant has none of that id."""
        known = self._registry.get(tenant, session_id)
        return None if known is None else known.stats(self._unix_offset_s)

    def blocks(self, tenant: str | None, session_id: str) -> list[int]:
        """What a session has, the longest unused first."""
        session = self._registry.get(tenant, session_id)
        return [] if session is None else [block for _, block in session.blocks]

    def _untag_all(self, session: Session) -> list[int]:
        self._registry.forget(session)
        tagged = [block for _, block in session.blocks]
        for block in tagged:
            self._pool.untag(block, session)
        return tagged


def joined(kv: SessionStats, state: SessionStats) -> SessionStats:
    """One record of a session that has keys and values as well as recurrent state.

    Requests and tokens are counted once, as the keys' side tells them; blocks and bytes add up.
    """
    return SessionStats(
        kv.session_id,
        kv.requests,
        kv.cached_tokens,
        kv.computed_tokens,
        kv.generated_tokens,
        kv.blocks_held + state.blocks_held,
        kv.bytes_held + state.bytes_held,
        kv.bytes_unique + state.bytes_unique,
        max(kv.running, state.running),
        min(kv.created_unix_s, state.created_unix_s),
        max(kv.last_use_unix_s, state.last_use_unix_s),
    )
