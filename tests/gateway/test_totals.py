"""Whatever happens in whatever order: phases sum to the totals, and the totals are the bill."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterator
from itertools import count as counter

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmem.gateway import Gateway, Upstream
from agentmem.records import PHASES, Call, CallBegin, Row, Scope
from tests.fake import FakeUpstream, Fault
from tests.gateway.conftest import chat_body

NUMBERS = counter()
SCOPES = st.sampled_from(["a", "b"])
STEP = st.one_of(
    st.tuples(st.just("phase"), SCOPES, st.sampled_from([*PHASES, None])),
    st.tuples(st.just("chat"), SCOPES, st.integers(1, 30)),
    st.tuples(st.just("stream"), SCOPES, st.integers(1, 30)),
    st.tuples(st.just("embed"), SCOPES, st.integers(1, 5)),
    st.tuples(st.just("later"), SCOPES, st.integers(1, 30)),
    st.tuples(st.just("fault"), SCOPES, st.sampled_from(["status", "malformed", "silent_end"])),
    st.tuples(st.just("close"), SCOPES, st.none()),
)


class World:
    """One fake and one gateway for all examples; scopes are new in each."""

    def __init__(self) -> None:
        self.fake = FakeUpstream()
        self.fake.start()
        self.rows: list[Row] = []
        self.gateway = Gateway(Upstream(self.fake.url), self.rows.append)
        self.gateway.start()
        self.client = httpx2.Client(timeout=20)

    def close(self) -> None:
        self.client.close()
        self.gateway.stop()
        self.fake.stop()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def play(world: World, steps: list[tuple[str, str, object]]) -> dict[str, dict[str, int]]:
    """Do the steps; calls per scope and phase as a plain reading of the rules has them."""
    number = next(NUMBERS)
    names = {short: f"{short}{number}" for short in "ab"}
    urls = {s: world.gateway.open_scope(Scope(n, s, "h", "t")) for s, n in names.items()}
    phase: dict[str, str] = defaultdict(lambda: "unattributed")
    wanted: dict[str, dict[str, int]] = {n: defaultdict(int) for n in names.values()}
    closed, threads = set(), []
    for action, scope, value in steps:
        name = names[scope]
        if action == "phase":
            if scope not in closed:
                world.gateway.set_phase(name, value)  # type: ignore[arg-type]
                phase[scope] = str(value or "unattributed")
        elif action == "close":
            world.gateway.close_scope(name)
            closed.add(scope)
            phase[scope] = "unattributed"
        elif action == "fault":
            world.fake.fail(Fault(value))  # type: ignore[arg-type]
        else:
            wanted[name][phase[scope]] += 1
            threads.append(send(world, urls[scope], action, int(str(value))))
    for thread in threads:
        thread.join()
    for name in names.values():
        assert world.gateway.wait_quiet(name, 0.0, 10.0) is not None
    return wanted


def send(world: World, url: str, action: str, size: int) -> threading.Thread:
    """One call; "later" is left running while the next steps are done."""
    tail, body = "chat/completions", chat_body("word " * size, stream=action == "stream")
    if action == "embed":
        tail, body = "embeddings", {"model": "e", "input": ["some words"] * size}

    def ask() -> None:
        with contextlib.suppress(httpx2.RemoteProtocolError):
            world.client.post(f"{url}/{tail}", json=body)

    seen = len([r for r in world.rows if isinstance(r, CallBegin)])
    thread = threading.Thread(target=ask)
    thread.start()
    if action == "later":
        while len([r for r in world.rows if isinstance(r, CallBegin)]) == seen:
            threading.Event().wait(0.001)
    else:
        thread.join()
    return thread


@settings(
    max_examples=40,
    deadline=None,
)
@given(steps=st.lists(STEP, min_size=1, max_size=14))
def test_sums_of_phases_are_the_totals_and_the_bill(
    world: World, steps: list[tuple[str, str, object]]
) -> None:
    world.rows.clear()
    world.fake.bill.clear()
    wanted = play(world, steps)
    calls = [row for row in world.rows if isinstance(row, Call)]
    begun = [row for row in world.rows if isinstance(row, CallBegin)]
    assert sorted(c.call_id for c in calls) == sorted(b.call_id for b in begun)
    for name, by_phase in wanted.items():
        booked: dict[str, int] = defaultdict(int)
        for call in calls:
            if call.scope == name:
                booked[call.phase or call.bucket] += 1
        assert booked == by_phase
    served = {s.request_id: s for s in world.fake.bill.of()}
    assert served.keys() == {c.call_id for c in calls}
    for call in calls:
        true = served[call.call_id]
        told = (call.input_tokens, call.output_tokens)
        # A reply that was broken on its way may still have said what it cost.
        if call.outcome == "ok" or told != (None, None):
            assert told == (true.input_tokens, true.output_tokens)
    by_phase_sum = sum(
        sum(c.input_tokens or 0 for c in calls if (c.phase, c.bucket) == key)
        for key in {(c.phase, c.bucket) for c in calls}
    )
    known = sum(served[c.call_id].input_tokens for c in calls if c.input_tokens is not None)
    assert by_phase_sum == sum(c.input_tokens or 0 for c in calls) == known
