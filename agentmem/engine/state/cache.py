"""Blocks of state: who uses them, which can be found, and under which claim."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from agentmem.engine.kv.blocks import BlockPool
from agentmem.engine.kv.registry import Session
from agentmem.engine.kv.retention import Retention
from agentmem.engine.state.layout import StatePages
from agentmem.engine.state.owners import Owners
from agentmem.engine.state.staging import Step
from agentmem.engine.state.versions import Claim, Hit, Shown, StateSlot, Version


class StateCache:
    """The pool of blocks and the claims under which some of them can be found."""

    def __init__(
        self,
        pages: StatePages,
        pool_number: int,
        retention: Retention,
        clock: Callable[[], float],
        max_sessions: int,
        on_step: Step,
    ) -> None:
        self.pages = pages
        size = pages.stride_bytes
        self.pool = BlockPool(pool_number, pages.blocks, size, retention.ttl_s, self._lost)
        self.owners = Owners(self.pool, retention, clock, max_sessions)
        self.step = 0
        self._clock = clock
        self._on_step = on_step
        self._shown: dict[bytes, Shown] = {}
        self._writers: list[str | bool | None] = [False] * pages.blocks
        """Tenant that wrote a block last; False for none."""

    def find(self, claims: Sequence[Claim], limit: int, tenant: str | None) -> Hit | None:
        """The deepest of the claims, of at most `limit` tokens, that is cached as it says."""
        for claim in sorted(claims, key=lambda c: c.offset, reverse=True):
            shown, block = self._shown.get(claim.key), self.pool.find(claim.key)
            if claim.offset > limit or shown is None or block is None:
                continue
            if shown.offset == claim.offset and shown.tenant == tenant:
                return Hit(claim, block, shown.step == self.step)
        return None

    def show(self, block: int, claim: Claim, tenant: str | None) -> bool:
        """Let a block be found; False when it, or another under that key, can be already."""
        if not self.pool.publish(block, claim.key):
            return False
        self._shown[claim.key] = Shown(claim.offset, self.step, tenant)
        return True

    def offset(self, key: bytes) -> int:
        """Tokens after which the state under a key was recorded."""
        return self._shown[key].offset

    def tag(self, key: bytes, session: Session | None) -> None:
        """Note that a session used what the key names."""
        self.owners.tag(self.pool.find(key), session, self._clock())

    # --- blocks

    def take(self, number: int, tenant: str | None) -> list[int]:
        """Blocks to write, used once each. What another tenant wrote is zeroed first."""
        taken: list[int] = []
        done = False
        try:
            for _ in range(number):
                self._on_step("take")
                taken.append(self.pool.take(self._clock()))
                before = self._writers[taken[-1]]
                if before is not False and before != tenant:
                    self._on_step("zero")
                    self.pages.zero(taken[-1])
                self._writers[taken[-1]] = tenant
            done = True
        finally:
            if not done:
                self.release(taken)
        return taken

    def release(self, blocks: Iterable[int]) -> None:
        """One user less for each."""
        now = self._clock()
        for block in blocks:
            self.pool.release(block, now)

    def pin(self, version: Version) -> None:
        """One more user of a version's blocks."""
        for block in version.blocks.values():
            self.pool.pin(block)

    def unpin(self, versions: Iterable[Version]) -> None:
        """One user less."""
        for version in versions:
            self.release(version.blocks.values())

    def forget_own(self, slot: StateSlot) -> None:
        """Forget what a sequence let be found, unless someone else has it."""
        for block, key in slot.published:
            if self.pool.keys[block] != key:
                continue
            if slot.session is not None:
                self.pool.untag(block, slot.session)
            if self.pool.orphaned(block):
                self.pool.forget(block)

    def _lost(self, key: bytes) -> None:
        del self._shown[key]
