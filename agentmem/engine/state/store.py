"""The states of running sequences as transactions, and cached ones that new sequences start from.

A step of a sequence is begun, staged and committed or aborted. What is committed is never written
again: a step reads one version's blocks and writes others. So an abort has nothing to restore, a
cached state needs no copy before a sequence that started from it goes on, and a reader keeps what
it pinned.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from itertools import count

from agentmem.engine.kv.registry import SessionStats
from agentmem.engine.kv.retention import Retention
from agentmem.engine.state import rules
from agentmem.engine.state.cache import StateCache
from agentmem.engine.state.layout import StatePages
from agentmem.engine.state.staging import Rows, Staged, Step, copy, no_step, stage
from agentmem.engine.state.versions import (
    NO_BLOCKS,
    Claim,
    Hit,
    Plan,
    StateCounts,
    StateError,
    StateSlot,
    Version,
)

MAX_SESSIONS = 10_000


class StateStore:
    """Slots of at most `slots` sequences over the blocks of `pages`.

    `block` is the distance of checkpoints in tokens, `drafts` the most that a step tries, `retain`
    how many versions a sequence keeps, the current one among them; older ones go when room is
    needed. `on_step` is told before each thing that a transaction does.
    One thread runs sequences; counts and sessions may be asked from any.
    """

    def __init__(
        self,
        pages: StatePages,
        *,
        block: int,
        drafts: int = 0,
        slots: int = 256,
        retain: int = 1,
        retention: Retention | None = None,
        clock: Callable[[], float] = time.monotonic,
        max_sessions: int = MAX_SESSIONS,
        pool_number: int = 0,
        on_step: Step = no_step,
    ) -> None:
        self.pages = pages
        self.block = block
        self.drafts = drafts
        self.lock = threading.RLock()
        self.clock = clock
        self.on_step = on_step
        self.cache = StateCache(
            pages, pool_number, retention or Retention(), clock, max_sessions, on_step
        )
        self._retain = max(1, retain)
        self._free_slots = list(range(slots - 1, -1, -1))
        self._slots: dict[int, StateSlot] = {}
        self._numbers = count(1)
        self._readers = 0
        self._commits = self._aborts = self._hits = self._hit_tokens = self._copied = 0

    @property
    def least_blocks(self) -> int:
        """With so many, the null block among them, one sequence always gets on."""
        return 1 + 2 + 1 + self.drafts + (self.drafts > 1)

    # --- a sequence's life

    def advance(self) -> None:
        """A step of the engine begins: what the last one cached may be hit."""
        self.cache.step += 1

    def lookup(self, claims: Sequence[Claim], limit: int, tenant: str | None) -> Hit | None:
        """The deepest cached state after at most `limit` tokens, of those that the claims name."""
        with self.lock:
            return self.cache.find(claims, limit, tenant)

    def open(
        self, *, tenant: str | None, session: str | None, hit: Hit | None = None
    ) -> StateSlot | None:
        """A slot for a sequence that starts from a hit or from nothing; None when all are taken.

        StateError for a hit that must wait for the next step, or is cached no more.
        """
        with self.lock:
            first = Version(next(self._numbers), 0, -1, 1, NO_BLOCKS)
            if hit is not None:
                if self.lookup([hit.claim], hit.claim.offset, tenant) != hit._replace(wait=False):
                    raise StateError(f"the state after {hit.claim.offset} tokens cannot be used")
                at = rules.column_of(hit.claim.offset, self.block)
                first = Version(first.number, hit.claim.offset, at, 1, {at: hit.block})
            if not self._free_slots:
                return None
            owners, now = self.cache.owners, self.clock()
            owner = None if session is None else owners.enter(tenant, session, now)
            slot = StateSlot(self._free_slots.pop(), tenant, owner, (first,))
            if hit is not None:
                self.cache.pin(first)
                owners.tag(hit.block, owner, now)
                slot.counts.hit_tokens = hit.claim.offset
                self._hits += 1
                self._hit_tokens += hit.claim.offset
            self._slots[slot.number] = slot
            return slot

    def begin(self, slot: StateSlot, computed: int, scheduled: int, drafts: int = 0) -> Plan | None:
        """Plan a step of `scheduled` tokens, the last `drafts` of them guessed.

        None, and nothing changed, without room. StateError when the caller's count is not the
        slot's, or a step is under way.
        """
        with self.lock:
            self._check_begin(slot, computed, scheduled, drafts)
            apart = rules.may_checkpoint_apart(computed, scheduled, drafts, self.block)
            wanted = 1 + drafts + apart
            reused = slot.spare[:wanted]
            missing = wanted - len(reused)
            if missing > self.cache.pool.available and not self._make_room(slot, missing):
                return None
            blocks = [*reused, *self.cache.take(missing, slot.tenant)]
            plan = Plan(
                next(self._numbers),
                slot.number,
                slot.current,
                scheduled,
                drafts,
                rules.running_column(computed, scheduled, self.block),
                tuple(blocks[: 1 + drafts]),
                blocks[-1] if apart else None,
                reused,
            )
            slot.written = set()
            slot.spare, slot.plan = slot.spare[len(reused) :], plan
            return plan

    def load(self, plan: Plan) -> int:
        """Bring the source into `write[0]`, for a pass that works in place; gives bytes moved."""
        slot = self._running(plan)
        source = plan.source
        if source.window_block is None or source.state_block is None:
            for block in plan.write:
                self.pages.zero(block)
            return 0
        rows = Rows(source.window_block, source.state_block, plan.write[0], source.offset)
        moved = copy(self.pages, rows, self.on_step)
        slot.counts.copied_bytes += moved
        self._copied += moved
        return moved

    def wrote(self, plan: Plan, layer: int, kind: int | None = None) -> None:
        """Note that a layer's states, or one of them, are all staged."""
        slot = self._running(plan)
        mine = self.pages.numbers(layer)
        slot.written.update(mine if kind is None else [mine[kind]])

    def commit(self, plan: Plan, accepted: int = 1, claims: Sequence[Claim] = ()) -> Version:
        """Make the staged state the current one, `accepted - 1` drafts kept.

        `claims` name states that this step made: at the boundary it crossed, and where it ended
        (without drafts). StateError when a state is not staged, or a claim's offset is not that of
        any state: like any other exception on the way, it aborts the step.
        """
        with self.lock:
            slot = self._running(plan)
            done = False
            try:
                self.on_step("commit")
                number = next(self._numbers)
                staged = stage(self.pages, slot, accepted, self.block, number, self.on_step)
                self._publish(slot, staged, claims)
                done = True
            finally:
                if not done:
                    self.abort(plan)
            self.on_step("committed")
            return slot.current

    def abort(self, plan: Plan) -> None:
        """Forget a step: slot, counters and hashes are as before it began."""
        with self.lock:
            slot = self._running(plan)
            fresh = [block for block in plan.blocks if block not in plan.reused]
            slot.spare, slot.plan = plan.reused + slot.spare, None
            self.cache.release(fresh)
            slot.counts.aborts += 1
            self._aborts += 1

    def rollback(self, slot: StateSlot, number: int) -> Version:
        """Make a retained version the current one; later ones are gone."""
        with self.lock:
            if slot.closed or slot.plan is not None:
                raise StateError(f"slot {slot.number} is closed or within a step")
            keep = [v for v in slot.versions if v.number <= number]
            if not keep or keep[-1].number != number:
                raise StateError(f"version {number} of slot {slot.number} is not retained")
            gone, slot.versions = slot.versions[len(keep) :], tuple(keep)
            self.cache.unpin(gone)
            return slot.current

    def fork(self, slot: StateSlot, session: str | None = None) -> StateSlot | None:
        """Another sequence from the current state; neither sees what the other does."""
        with self.lock:
            twin = self.open(tenant=slot.tenant, session=session)
            if twin is not None:
                self.cache.pin(slot.current)
                twin.versions = (slot.current,)
            return twin

    def close(self, slot: StateSlot, claim: Claim | None = None, *, keep: bool = True) -> None:
        """End a sequence: finished, preempted or given up. A step under way is aborted.

        `claim` lets the state where it ended be found. Without `keep`, what this sequence made is
        forgotten, unless someone else has it.
        """
        with self.lock:
            if slot.closed:
                return
            if claim is not None and claim.offset != slot.current.computed:
                raise StateError(f"slot {slot.number} ended at {slot.current.computed}: {claim}")
            if slot.plan is not None:
                self.abort(slot.plan)
            dropped = slot.session is not None and slot.session.dropped
            if claim is not None and keep and not dropped:
                self._show_end(slot, claim)
            slot.closed = True
            self.cache.unpin(slot.versions)
            self.cache.release(slot.spare)
            slot.spare = ()
            if dropped or not keep:
                self.cache.forget_own(slot)
            if slot.session is not None:
                self.cache.owners.leave(slot.session, self.clock())
            del self._slots[slot.number]
            self._free_slots.append(slot.number)

    # --- what is there

    def pin(self, version: Version) -> None:
        """Keep a version's blocks; `unpin` once for each."""
        with self.lock:
            self.cache.pin(version)
            self._readers += 1

    def unpin(self, version: Version) -> None:
        """See pin."""
        with self.lock:
            self.cache.unpin([version])
            self._readers -= 1

    def counts(self) -> StateCounts:
        """Blocks, transactions, hits."""
        with self.lock:
            return StateCounts(
                *self.cache.pool.counts,
                self.cache.pool.block_bytes,
                len(self._slots),
                self._readers,
                self._commits,
                self._aborts,
                self._hits,
                self._hit_tokens,
                self._copied,
                self.cache.pool.evictions,
            )

    def sessions(self, tenant: str | None) -> list[SessionStats]:
        """A tenant's sessions."""
        with self.lock:
            return self.cache.owners.stats(tenant)

    def session(self, tenant: str | None, session_id: str) -> SessionStats | None:
        """One session; None when the tenant has none of that id."""
        with self.lock:
            return self.cache.owners.one(tenant, session_id)

    def drop(self, tenant: str | None, session_id: str) -> int:
        """Forget a session and free what nobody else has; gives the bytes freed at once."""
        with self.lock:
            return self.cache.owners.drop(tenant, session_id)

    # --- inside

    def _running(self, plan: Plan) -> StateSlot:
        slot = self._slots.get(plan.slot)
        if slot is None or slot.plan is not plan:
            raise StateError(f"step {plan.number} of slot {plan.slot} is over")
        return slot

    def _check_begin(self, slot: StateSlot, computed: int, scheduled: int, drafts: int) -> None:
        if slot.closed or slot.plan is not None:
            raise StateError(f"slot {slot.number} is closed or within a step")
        if computed != slot.current.computed:
            raise StateError(f"slot {slot.number} is at {slot.current.computed}, not {computed}")
        if not 0 <= drafts < scheduled or drafts > self.drafts:
            raise StateError(f"{drafts} drafts of {scheduled} tokens, at most {self.drafts}")

    def _make_room(self, slot: StateSlot, missing: int) -> bool:
        """Let older versions go, this sequence's first, then scratch of sequences at rest."""
        for each in (slot, *(s for s in self._slots.values() if s is not slot)):
            busy = None if each.plan is None else each.plan.source
            while len(each.versions) > 1 and each.versions[0] is not busy:
                oldest, each.versions = each.versions[0], each.versions[1:]
                self.cache.unpin([oldest])
                if self.cache.pool.available >= missing:
                    return True
        for each in self._slots.values():
            if each is not slot and each.plan is None:
                scratch, each.spare = each.spare, ()
                self.cache.release(scratch)
        return self.cache.pool.available >= missing

    def _publish(self, slot: StateSlot, staged: Staged, claims: Sequence[Claim]) -> None:
        """Hashes, then counters and blocks in one assignment; hashes go again if that fails."""
        plan, shown = slot.plan, list[tuple[int, bytes]]()
        assert plan is not None
        done = False
        try:
            for claim in claims:
                self.on_step("hash")
                block = staged.ready.get(claim.offset)
                if block is None:
                    raise StateError(f"{claim.offset} tokens claimed, states at {staged.ready}")
                if self.cache.show(block, claim, slot.tenant):
                    shown.append((block, claim.key))
            self.on_step("publish")
            slot.versions, slot.plan = (*slot.versions, staged.version), None
            done = True
        finally:
            if not done:
                for block, _ in shown:
                    self.cache.pool.forget(block)
        slot.published += shown
        slot.counts.commits += 1
        slot.counts.checkpoints += len(shown)
        slot.counts.copied_bytes += staged.moved_bytes
        self._commits += 1
        self._copied += staged.moved_bytes
        for claim in claims:
            self.cache.tag(claim.key, slot.session)
        self._settle(slot, plan)

    def _settle(self, slot: StateSlot, plan: Plan) -> None:
        """Keep scratch for the next step; give back what neither it nor a version needs."""
        needed = set(slot.current.blocks.values())
        left = [block for block in plan.blocks if block not in needed]
        scratch = [block for block in left if self.cache.pool.keys[block] is None]
        spare = (*slot.spare, *scratch)
        slot.spare = spare[: plan.drafts]
        self.cache.release([b for b in left if b not in scratch])
        self.cache.release(spare[plan.drafts :])
        gone, slot.versions = slot.versions[: -self._retain], slot.versions[-self._retain :]
        self.cache.unpin(gone)

    def _show_end(self, slot: StateSlot, claim: Claim) -> None:
        """Let the current state be found, brought together in one block where it is not."""
        version = slot.current
        window, state = version.window_block, version.state_block
        if window is None or state is None:
            return
        if self.cache.pool.find(claim.key) is None:
            if version.accepted == 1 and self.cache.pool.keys[window] is None:
                self._show(slot, window, claim)
            elif self.cache.pool.available or self._make_room(slot, 1):
                (block,) = self.cache.take(1, slot.tenant)
                try:
                    rows = Rows(window, state, block, version.offset)
                    slot.counts.copied_bytes += copy(self.pages, rows, self.on_step)
                    self._show(slot, block, claim)
                finally:
                    self.cache.release([block])
        self.cache.tag(claim.key, slot.session)

    def _show(self, slot: StateSlot, block: int, claim: Claim) -> None:
        if self.cache.show(block, claim, slot.tenant):
            slot.published.append((block, claim.key))
            slot.counts.checkpoints += 1
