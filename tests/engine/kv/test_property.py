"""Random lives of sequences against a model of what each slot holds."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentmem.engine.kv.layout import NULL_BLOCK
from agentmem.engine.kv.retention import Retention
from agentmem.engine.kv.tables import Holding
from tests.engine.kv.toys import Clock, idle, manager

SIZE = 4
SESSIONS = st.sampled_from([None, "s", "t", "u"])
TENANTS = st.sampled_from([None, None, None, None, "x"])
DICE = st.integers(0, 2**32 - 1).map(Random)
"""Choices inside a rule: spread evenly, where drawn ones would keep sequences too short to meet."""


def some(dice: Random, least: int, most: int) -> list[int]:
    """Tokens of an alphabet of two, so that beginnings are shared often."""
    return [dice.randint(0, 1) for _ in range(dice.randint(least, most))]


class Running:
    """A sequence as the engine would know it."""

    def __init__(self, holding: Holding, tokens: list[int], tenant: str | None) -> None:
        self.holding = holding
        self.tokens = tokens
        self.tenant = tenant

    def state(self, position: int) -> tuple[Any, ...]:
        """What the slot of a position must hold: it depends on all tokens up to there."""
        return (self.tenant, *self.tokens[: position + 1])


class Machine(RuleBasedStateMachine):
    """One pool of few blocks, so that everything is evicted, shared and refused often."""

    windows: tuple[int | None, ...] = (None,)
    blocks = 14

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.kv = manager(
            *self.windows,
            blocks=self.blocks,
            size=SIZE,
            clock=self.clock,
            retention=Retention(ttl_s=5, budget_bytes=700),
            max_sessions=4,
        )
        self.memory: list[dict[int, Any]] = [{} for _ in self.windows]
        self.running: list[Running] = []
        self.seen: list[list[int]] = [[]]

    # --- what an engine does

    @rule(
        dice=DICE,
        tenant=TENANTS,
        session=SESSIONS,
        reuse=st.sampled_from([True, True, True, False]),
    )
    @precondition(lambda self: len(self.running) < 5)
    def begin(self, dice: Random, tenant: str | None, session: str | None, reuse: bool) -> None:
        """A prompt that continues or leaves one seen before, mostly of the same tenant."""
        before = dice.choice(self.seen[-8:])
        prompt = before[: dice.randint(0, len(before))] + some(dice, 1, 9)
        holding = self.kv.open(prompt, tenant=tenant, session=session, reuse=reuse)
        assert holding.cached < len(prompt)
        assert reuse or not holding.cached
        one = Running(holding, list(prompt), tenant)
        self.running.append(one)
        self.check_visible(one, holding.cached)

    @rule(dice=DICE)
    @precondition(lambda self: self.running)
    def step(self, dice: Random) -> None:
        """Grow some, copy, write, commit what was accepted."""
        chosen = dice.sample(self.running, dice.randint(1, len(self.running)))
        passes = []
        for one in chosen:
            left = len(one.tokens) - one.holding.length
            prefill = left > 0
            drafts = some(dice, 0 if prefill else 1, 5)
            length = one.holding.length
            chunk = dice.randint(1, left) if prefill else 0
            if not prefill or chunk == left:
                one.tokens.extend(drafts)
                chunk = len(one.tokens) - length
            before = [list(t) for t in one.holding.tables]
            if self.kv.grow(one.holding, length + chunk):
                fixed = min(chunk, left) if prefill else 1
                accepted = dice.randint(max(1, fixed), chunk)
                passes.append((one, length, length + chunk, length + accepted))
            else:
                for old, new in zip(before, one.holding.tables, strict=True):
                    assert len(new) == len(old)
                    assert all(b in (a, NULL_BLOCK) for a, b in zip(old, new, strict=True))
                del one.tokens[max(length + max(left, 0), length) :]
        self.copy(one for one, *_ in passes)
        for one, start, stop, _ in passes:
            self.write(one, start, stop)
        for one, start, stop, _ in passes:
            for position in range(start, stop):
                self.check_visible(one, position)
        for one, _, stop, length in passes:
            self.kv.commit(one.holding, one.tokens, length)
            if length < stop:
                del one.tokens[length:]
            self.kv.rewind(one.holding, length)

    @rule(dice=DICE)
    @precondition(lambda self: self.running)
    def abort_a_step(self, dice: Random) -> None:
        """Aborted between grow and commit, the pass run or not."""
        one = dice.choice(self.running)
        stop = len(one.tokens)
        if self.kv.grow(one.holding, stop) and dice.random() < 0.5:
            self.copy([one])
            self.write(one, one.holding.length, stop)
        self.end(one, dice.random() < 0.5)

    @rule(dice=DICE)
    @precondition(lambda self: self.running)
    def rewind(self, dice: Random) -> None:
        one = dice.choice(self.running)
        least = len(one.holding.keys) * SIZE
        if set(self.windows) != {None}:
            least = max(least, one.holding.trimmed)
        if least <= one.holding.length < len(one.tokens):
            self.kv.rewind(one.holding, dice.randint(least, one.holding.length))

    @rule(dice=DICE)
    @precondition(lambda self: self.running and len(self.running) < 5)
    def fork(self, dice: Random) -> None:
        one = dice.choice(self.running)
        if not one.holding.copies:
            tokens = one.tokens[: one.holding.length] + some(dice, 1, 9)
            self.running.append(Running(self.kv.fork(one.holding), tokens, one.tenant))

    @rule(dice=DICE, keep=st.sampled_from([True, True, False]))
    @precondition(lambda self: self.running)
    def finish(self, dice: Random, keep: bool) -> None:
        self.end(dice.choice(self.running), keep)

    @rule(tenant=TENANTS, session=st.sampled_from(["s", "t", "u"]))
    def drop(self, tenant: str | None, session: str) -> None:
        free = self.kv.counts().free_blocks
        freed = self.kv.drop(tenant, session)
        assert freed == 100 * (self.kv.counts().free_blocks - free)
        assert self.kv.session(tenant, session) is None

    @rule(seconds=st.integers(1, 6))
    def wait(self, seconds: int) -> None:
        self.clock.now += seconds

    def finish_one(self, dice: Random) -> None:
        self.end(dice.choice(self.running), dice.random() < 0.7)

    def branch(self, dice: Random) -> None:
        if len(self.running) < 5:
            self.fork(dice)

    def end(self, one: Running, keep: bool) -> None:
        self.kv.close(one.holding, keep=keep)
        self.running.remove(one)
        self.seen.append(one.tokens)

    # --- the model

    def copy(self, chosen: Any) -> None:
        for one in chosen:
            for group, src, dst in one.holding.copies:
                for offset in range(SIZE):
                    self.memory[group][dst * SIZE + offset] = self.memory[group].get(
                        src * SIZE + offset
                    )

    def write(self, one: Running, start: int, stop: int) -> None:
        for group in range(len(self.windows)):
            slots = self.kv.slots(one.holding, group, start, stop)
            assert all(slot >= SIZE for slot in slots)
            for position, slot in zip(range(start, stop), slots, strict=True):
                self.memory[group][slot] = one.state(position)

    def check_visible(self, one: Running, position: int) -> None:
        """Everything before `position` that the token there sees is what it must be."""
        for group, window in enumerate(self.windows):
            first = 0 if window is None else max(0, position - window + 1)
            for seen, slot in zip(
                range(first, position),
                self.kv.slots(one.holding, group, first, position),
                strict=True,
            ):
                assert self.memory[group][slot] == one.state(seen), (group, seen, position)

    @invariant()
    def users_are_counted(self) -> None:
        for group, pool in enumerate(self.kv.pools):
            users = Counter(
                block
                for one in self.running
                for block in one.holding.tables[group]
                if block != NULL_BLOCK
            )
            users.update(
                c.src for one in self.running for c in one.holding.copies if c.group == group
            )
            assert {b: n for b, n in enumerate(pool.refs) if n} == dict(users)
            used, cached, free = pool.counts
            assert used == len(users)
            assert used + cached + free == self.blocks - 1
            assert len(set(pool._free)) == free
            assert not any(pool.refs[b] or pool.keys[b] for b in pool._free)

    @invariant()
    def keys_lead_to_their_blocks(self) -> None:
        for pool in self.kv.pools:
            keyed = {key: block for block, key in enumerate(pool.keys) if key}
            assert keyed == pool._by_key
            for block in keyed.values():
                assert bool(pool.refs[block]) != (block in pool._shelf)
        count = Counter(key for pool in self.kv.pools for key in pool._by_key)
        assert {k: n.groups for k, n in self.kv.index._nodes.items()} == dict(count)

    @invariant()
    def sessions_own_what_they_say(self) -> None:
        owners = Counter[tuple[int, int]]()
        sessions = [s for t in (None, "x") for s in self.kv._registry.of_tenant(t)]
        for session in sessions:
            owners.update(session.blocks.keys())
        for session in sessions:
            assert session.bytes_held == 100 * len(session.blocks)
            assert session.bytes_unique == 100 * sum(owners[b] == 1 for b in session.blocks)
            assert session.running >= 0
        for group, pool in enumerate(self.kv.pools):
            for block, owned in enumerate(pool._owners):
                assert len(owned or ()) == owners[group, block]
                assert not owned or pool.keys[block]

    def teardown(self) -> None:
        for one in list(self.running):
            self.end(one, True)
        assert idle(self.kv)
        assert all(s.running == 0 for t in (None, "x") for s in self.kv._registry.of_tenant(t))


class Windowed(Machine):
    windows = (None, 5)


class Sliding(Machine):
    windows = (7, 3)
    blocks = 12


def case(machine: type[Machine], examples: int) -> Any:
    test = machine.TestCase
    test.settings = settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    return test


TestFull = case(Machine, 25)
TestWindowed = case(Windowed, 25)
TestSliding = case(Sliding, 25)


def live(machine: Machine, seed: int, actions: int) -> None:
    """One long life without shrinking: sequences meet far more often than in short ones."""
    dice = Random(seed)
    for _ in range(actions):
        roll = dice.random()
        tenant = dice.choice([None, None, None, "x"])
        if roll < 0.3 and len(machine.running) < 5:
            machine.begin(dice, tenant, dice.choice([None, "s", "t", "u"]), dice.random() < 0.9)
        elif roll < 0.92 and machine.running:
            act = [machine.step] * 8 + [machine.finish_one] * 3
            dice.choice([*act, machine.abort_a_step, machine.rewind, machine.branch])(dice)
        elif roll < 0.95:
            machine.drop(tenant, dice.choice(["s", "t", "u"]))
        else:
            machine.wait(dice.randint(1, 6))
        machine.users_are_counted()
        machine.keys_lead_to_their_blocks()
        machine.sessions_own_what_they_say()
    assert machine.kv.counts().hit_tokens > actions / 10
    assert machine.kv.counts().evictions > actions / 100
    machine.teardown()


@pytest.mark.parametrize("machine", [Machine, Windowed, Sliding])
def test_a_long_life(machine: type[Machine]) -> None:
    live(machine(), 1, 1500)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [Machine, Windowed, Sliding])
def test_many_long_lives(machine: type[Machine]) -> None:
    for seed in range(2, 40):
        live(machine(), seed, 4000)
