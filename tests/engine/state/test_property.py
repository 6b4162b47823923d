"""Random schedules of a toy of whole numbers: each cached state is what a recomputation gives."""

from __future__ import annotations

from random import Random

import pytest

from agentmem.engine.kv.retention import Retention
from agentmem.engine.state import rules
from agentmem.engine.state.readers import Reader
from agentmem.engine.state.store import StateStore
from agentmem.engine.state.versions import Claim, StateSlot
from tests.engine.state.toys import (
    Clock,
    boundaries,
    claims_of,
    current,
    forward,
    make_store,
    read,
    recompute,
)


class One:
    """A sequence as an engine knows it."""

    def __init__(self, slot: StateSlot, tokens: list[int], goal: int) -> None:
        self.slot = slot
        self.prompt = len(tokens)
        self.tokens = tokens
        self.goal = goal
        self.session = slot.session and slot.session.session_id


class World:
    """An engine's loop over one store: few blocks, so that all things happen often."""

    def __init__(self, seed: int, block: int, blocks: int) -> None:
        self.dice = Random(seed)
        self.clock = Clock()
        self.store: StateStore = make_store(
            blocks,
            block,
            clock=self.clock,
            retain=self.dice.choice([1, 2, 3]),
            retention=Retention(ttl_s=5, budget_bytes=5000),
            slots=4,
            max_sessions=3,
        )
        self.block = block
        self.claimed: dict[bytes, tuple[int, ...]] = {}
        self.running: list[One] = []
        self.waiting: list[tuple[list[int], int, str | None, str | None]] = []
        self.seen: list[list[int]] = [[]]
        self.readers: list[tuple[Reader, list[int]]] = []
        self.happened: dict[str, int] = {}

    def note(self, what: str) -> None:
        self.happened[what] = self.happened.get(what, 0) + 1

    def some(self, least: int, most: int) -> list[int]:
        return [self.dice.randint(0, 1) for _ in range(self.dice.randint(least, most))]

    # --- requests

    def arrive(self) -> None:
        before = self.dice.choice(self.seen[-6:])
        prompt = before[: self.dice.randint(0, len(before))] + self.some(1, 3 * self.block)
        tenant = self.dice.choice([None, None, None, "x"])
        session = self.dice.choice([None, "s", "t", "u", "v"])
        self.waiting.append((prompt, len(prompt) + self.dice.randint(1, 15), tenant, session))

    def admit(self) -> None:
        prompt, goal, tenant, session = self.waiting[0]
        claims = self.remember(prompt, tenant, range(1, len(prompt) + 1))
        hit = self.store.lookup(claims, rules.hit_limit(len(prompt), 10**9, self.block), tenant)
        if hit is not None and hit.wait:
            self.note("wait")
            with pytest.raises(Exception, match="cannot be used"):
                self.store.open(tenant=tenant, session=session, hit=hit)
            return
        slot = self.store.open(tenant=tenant, session=session, hit=hit)
        if slot is None:
            return
        self.waiting.pop(0)
        one = One(slot, list(prompt), goal)
        self.running.append(one)
        if hit is not None:
            self.note("hit")
            assert hit.claim.offset < len(prompt)
            assert current(self.store, slot) == recompute(prompt[: hit.claim.offset])

    def remember(self, tokens: list[int], tenant: str | None, ends: range) -> list[Claim]:
        claims = claims_of(tokens, tenant, ends)
        self.claimed.update({claim.key: tuple(tokens[: claim.offset]) for claim in claims})
        return claims

    # --- steps

    def step(self) -> None:
        self.store.advance()
        if self.waiting:
            self.admit()
        plans = []
        for one in self.dice.sample(self.running, len(self.running)):
            tokens, drafts = self.cut(one)
            if not tokens:
                self.note("defer")
                continue
            plan = self.store.begin(one.slot, one.slot.current.computed, len(tokens), drafts)
            if plan is None:
                self.preempt(one)
            else:
                plans.append((one, plan, tokens))
        for _, plan, tokens in plans:
            forward(self.store, plan, tokens)
        for one, plan, tokens in self.dice.sample(plans, len(plans)):
            if self.dice.random() < 0.08:
                self.store.abort(plan)
                self.note("abort")
                continue
            self.settle(one, tokens, plan.drafts)
        if self.waiting and self.dice.random() < 0.3:
            self.admit()  # late: what this step cached must not be hit

    def cut(self, one: One) -> tuple[list[int], int]:
        """A chunk of the prompt, or a token and guesses."""
        at = one.slot.current.computed
        if at < one.prompt:
            budget = self.dice.randint(1, 2 * self.block)
            prompt = rules.Prompt(one.prompt, self.block, chunk_limit=2 * self.block)
            chunk = rules.clip_chunk(at, budget, prompt)
            return one.tokens[at : at + chunk], 0
        drafts = self.dice.randint(0, 3)
        return [one.tokens[at], *self.some(drafts, drafts)], drafts

    def settle(self, one: One, tokens: list[int], drafts: int) -> None:
        slot, at = one.slot, one.slot.current.computed
        plan = slot.plan
        assert plan is not None
        accepted = self.dice.randint(1, 1 + drafts)
        end = at + len(tokens) - drafts + accepted - 1
        text = [*one.tokens[:at], *tokens][:end]
        outcome = rules.postprocess(end, accepted, plan.column, self.block)
        claims = []
        if outcome.checkpoint:
            offset = outcome.checkpoint[1]
            claims = self.remember(text, slot.tenant, range(offset, offset + 1))
            self.note("between drafts" if outcome.move and outcome.move.bias else "checkpoint")
        if self.dice.random() < 0.05:
            wrong = [Claim(b"wrong", end + 1)]
            with pytest.raises(Exception, match="claimed"):
                self.store.commit(plan, accepted, [*claims, *wrong])
            return
        self.store.commit(plan, accepted, claims)
        if end >= one.prompt:
            one.tokens = [*text, self.dice.randint(0, 1)]
        assert current(self.store, slot) == recompute(text)
        if slot.current.computed >= one.goal:
            self.finish(one)
        elif self.dice.random() < 0.1 and end > one.prompt:
            self.roll_back(one)
        elif self.dice.random() < 0.1 and len(self.readers) < 2:
            self.readers.append((Reader(self.store, slot), text))

    def roll_back(self, one: One) -> None:
        version = self.dice.choice(one.slot.versions)
        if version.computed >= one.prompt:
            self.note("rollback" if version is not one.slot.current else "same")
            self.store.rollback(one.slot, version.number)
            del one.tokens[version.computed + 1 :]
            assert current(self.store, one.slot) == recompute(one.tokens[:-1])

    def preempt(self, one: One) -> None:
        self.note("preempt")
        self.store.close(one.slot)
        self.running.remove(one)
        self.waiting.append((one.tokens, max(one.goal, 1), one.slot.tenant, one.session))

    def finish(self, one: One) -> None:
        end = one.slot.current.computed
        self.seen.append(one.tokens[:end])
        claims = self.remember(one.tokens, one.slot.tenant, range(end, end + 1))
        self.store.close(
            one.slot,
            claims[0] if claims and self.dice.random() < 0.5 else None,
            keep=self.dice.random() < 0.9,
        )
        self.running.remove(one)
        self.note("finish")

    # --- what must hold

    def check(self) -> None:
        store, pool = self.store, self.store.cache.pool
        for block, key in enumerate(pool.keys):
            if key is not None:
                tokens = self.claimed[key]
                assert store.cache._shown[key].offset == len(tokens)
                assert read(store, block, block, 0) == recompute(tokens)
        for reader, tokens in self.readers:
            found = reader.version
            assert found.window_block is not None and found.state_block is not None
            states = read(store, found.window_block, found.state_block, found.offset)
            assert states == recompute(tokens)
        users = [0] * store.pages.blocks
        for slot in store._slots.values():
            held = [b for v in slot.versions for b in v.blocks.values()]
            for block in [*held, *slot.spare]:
                users[block] += 1
        for reader, _ in self.readers:
            for block in reader.version.blocks.values():
                users[block] += 1
        assert pool.refs == users
        used, cached, free = pool.counts
        assert used + cached + free == store.pages.blocks - 1
        assert not store.pages.page(0).any(), "the null block is never written"

    def live(self, steps: int) -> None:
        for _ in range(steps):
            roll = self.dice.random()
            if roll < 0.3 and len(self.waiting) < 3:
                self.arrive()
            elif roll < 0.34:
                self.store.drop(self.dice.choice([None, "x"]), self.dice.choice("stu"))
            elif roll < 0.4:
                self.clock.now += self.dice.randint(1, 6)
            elif roll < 0.5 and self.readers:
                self.readers.pop(self.dice.randrange(len(self.readers)))[0].close()
            elif roll < 0.55 and self.running:
                self.finish(self.dice.choice(list(self.running)))
            else:
                self.step()
            self.check()

    def end(self) -> None:
        for one in list(self.running):
            self.store.close(one.slot)
        for reader, _ in self.readers:
            reader.close()
        assert self.store.counts().used_blocks == 0
        assert not any(s.running for t in (None, "x") for s in self.store.sessions(t))


EVENTS = {
    "hit",
    "wait",
    "abort",
    "checkpoint",
    "between drafts",
    "finish",
    "preempt",
    "rollback",
    "defer",
}


@pytest.mark.parametrize(
    ("seed", "block", "blocks"), [(1, 4, 24), (2, 4, 16), (3, 3, 20), (4, 8, 18)]
)
def test_a_life(seed: int, block: int, blocks: int) -> None:
    world = World(seed, block, blocks)
    world.live(500)
    world.end()
    counts = world.store.counts()
    assert world.happened.keys() >= {"hit", "abort", "checkpoint", "between drafts", "finish"}
    assert counts.evictions and counts.hit_tokens and counts.commits and counts.aborts


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_lives() -> None:
    happened: set[str] = set()
    for seed in range(10, 34):
        world = World(seed, Random(seed).choice([2, 3, 4, 8]), Random(seed).choice([14, 20, 40]))
        world.live(1000)
        world.end()
        happened |= world.happened.keys()
    assert happened >= EVENTS


def test_claims_are_told_apart() -> None:
    """The test's own hashes: another text, another tenant, another key."""
    keys = {c.key for t in (None, "x", "y") for c in boundaries([1, 2, 3, 4], t, 2)}
    assert len(keys) == 6
