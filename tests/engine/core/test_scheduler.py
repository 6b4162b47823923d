"""What a step holds: bounds by class, order, preemption, and the cost of a long queue."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from agentmem.engine.drafts import Drafter
from agentmem.engine.kv.layout import GroupSpec
from agentmem.engine.kv.manager import KVManager
from agentmem.engine.request import Request
from agentmem.engine.sampler import Sampler
from agentmem.engine.scheduler import Limits, Scheduler, Step
from agentmem.engine.sequence import Costs, Sequence, Voice
from agentmem.engine.text import TextStream


class Bench:
    """A scheduler with blocks and no model: every step is committed as if it had run."""

    def __init__(self, blocks: int = 200, window: int | None = None, **limits: int) -> None:
        self.kv = KVManager((GroupSpec((0,), 1, 4, window),), blocks=blocks + 1)
        self.scheduler = Scheduler(self.kv, Limits(**limits))
        self.count = 0

    def add(self, tokens: int, kind: str = "interactive", **fields: Any) -> Sequence:
        self.count += 1
        start = 1000 * self.count
        request = Request(
            str(self.count), tuple(range(start, start + tokens)), traffic_class=kind, **fields
        )
        sequence = Sequence(request, print, print, 1000, Costs(0.0), self.count)
        self.scheduler.add(sequence)
        return sequence

    def run(self, step: Step, token: int = 7) -> None:
        """Commit: all rows are right, drafts are not, everybody at its end says `token`."""
        for part in step.parts.values():
            sequence = part.sequence
            length = part.start + part.known
            self.kv.commit(sequence.holding, sequence.tokens, length)
            self.kv.rewind(sequence.holding, length)
            if part.samples:
                sequence.tokens.append(token)
            sequence.computed = length

    def step(self) -> dict[str, int]:
        """Run a step; rows by request id."""
        step = self.scheduler.schedule()
        self.run(step)
        return {p.sequence.request.request_id: p.rows for p in step.parts.values()}


def test_prompts_run_in_pieces_beside_single_tokens() -> None:
    bench = Bench(step_tokens=64)
    bench.add(10)
    assert bench.step() == {"1": 10}
    bench.add(100)
    assert bench.step() == {"1": 1, "2": 63}
    assert bench.step() == {"1": 1, "2": 37}
    assert bench.step() == {"1": 1, "2": 1}


def test_one_step_takes_in_several_and_keeps_their_order() -> None:
    bench = Bench(step_tokens=50, max_running=3)
    for tokens in (20, 20, 20, 20):
        bench.add(tokens)
    assert bench.step() == {"1": 20, "2": 20, "3": 10}
    assert bench.step() == {"1": 1, "2": 1, "3": 10}
    assert bench.step() == {"1": 1, "2": 1, "3": 1}, "no more than may run"


def test_background_rows_are_bounded_while_interactive_requests_are_about() -> None:
    bench = Bench(step_tokens=512, background_tokens=128, calm_steps=3)
    bench.add(1000, "background")
    bench.add(200, "background")
    talk = bench.add(300)
    assert bench.step() == {"3": 300, "1": 128}
    for _ in range(3):
        rows = bench.step()
        assert rows.pop("3") == 1
        assert sum(rows.values()) == 128
    bench.scheduler.remove(talk)
    for _ in range(3):
        assert sum(bench.step().values()) == 128, "the next one may come any moment"
    assert sum(bench.step().values()) > 128, "it did not"


def test_an_interactive_request_waits_for_one_bounded_step_at_most() -> None:
    """In rows: what runs when it comes, then its own prompt without a break."""
    bench = Bench(blocks=2000, step_tokens=256, background_tokens=96)
    for _ in range(5):
        bench.add(2000, "background")
    bench.scheduler._calm = 0
    for _ in range(4):
        step = bench.scheduler.schedule()
        assert step.rows <= 96
        assert not step.interruptible
        bench.run(step)
    late = bench.add(600)
    seen = []
    while late.pending > 1 or not late.tokens:
        rows = bench.step()
        seen.append(rows["6"])
        assert sum(rows.values()) - rows["6"] <= 96
    assert seen == [256, 256, 88]


def test_a_large_background_step_can_be_given_up() -> None:
    bench = Bench(step_tokens=256, background_tokens=96)
    bench.add(1000, "background")
    step = bench.scheduler.schedule()
    assert (step.rows, step.interruptible) == (256, True)
    bench.add(50)
    # nothing was committed: the same rows come again, in bounds
    assert bench.step() == {"2": 50, "1": 96}
    assert bench.scheduler.leading == "interactive"


def test_interactive_requests_take_places_from_background_ones() -> None:
    bench = Bench(max_running=2)
    for _ in range(2):
        bench.add(10, "background")
    bench.step()
    bench.add(10)
    # the newest gives way, and is next of its class
    assert bench.step() == {"1": 1, "3": 10}
    assert bench.scheduler.preemptions == 1
    assert bench.step() == {"1": 1, "3": 1}


def test_blocks_are_taken_from_background_first_and_the_newest_first() -> None:
    bench = Bench(blocks=12)
    old = bench.add(30)
    young = bench.add(30)
    back = bench.add(60, "background")
    bench.step()
    assert bench.scheduler.running("background") == 1
    order = []
    for _ in range(140):
        bench.step()
        for sequence in (back, young, old):
            if sequence.costs.preemptions and sequence not in order:
                order.append(sequence)
    assert order == [back, young]
    assert old.pending == 1, "the oldest goes on"


def test_a_preempted_sequence_comes_back_with_what_it_had_said() -> None:
    bench = Bench(blocks=8)
    first, second = bench.add(40), bench.add(40)
    while not second.costs.preemptions:
        bench.step()
    said = len(second.tokens)
    bench.scheduler.remove(first)
    (rows,) = bench.step().values()
    assert rows <= 17, "all but the block that the other one took was still cached"
    assert len(second.tokens) == said + 1


def test_twins_do_not_compute_the_same_beginning_in_one_step() -> None:
    bench = Bench()
    prompt = tuple(range(100))
    for number in ("a", "b", "c"):
        bench.count += 1
        request = Request(number, prompt, tenant="t")
        bench.scheduler.add(Sequence(request, print, print, 9, Costs(0.0), bench.count))
    assert bench.step() == {"a": 100}
    assert bench.step() == {"a": 1, "b": 4, "c": 4}, "six full blocks of sixteen were there"


def test_drafts_are_extra_rows_within_the_budgets() -> None:
    bench = Bench(step_tokens=20, few_rows=8)
    for _ in range(2):
        sequence = bench.add(5)
        sequence.tokens = [1, 2, 3, 4, 5, 6] * 3
        sequence.voice = Voice(
            Sampler(sequence.request.sampling), TextStream([], ()), Drafter(sequence.tokens)
        )
    bench.step()
    bench.run(bench.scheduler.schedule(), token=1)
    step = bench.scheduler.schedule()
    assert sum(len(part.drafts) for part in step.parts.values()) <= 6
    assert any(part.drafts for part in step.parts.values())


def _seconds(action: Callable[[], object], times: int) -> float:
    best = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - began)
    return best


@pytest.mark.parametrize("queued", [pytest.param(1_000_000, marks=pytest.mark.slow), 100_000])
def test_a_long_queue_does_not_slow_a_step(queued: int) -> None:
    short, long = Bench(max_running=8), Bench(max_running=8)
    for bench, waiting in ((short, 8), (long, queued)):
        for _ in range(8):
            bench.add(10)
        bench.step()
        shared = Request("q", (1, 2, 3), traffic_class="background")
        for number in range(waiting):
            bench.scheduler.add(Sequence(shared, print, print, 1, Costs(0.0), 100 + number))
        for number in range(100, 100 + waiting, 3):
            held = bench.scheduler._waiting["background"].get(number)
            if held is not None:
                bench.scheduler.remove(held)
    fast, slow = (_seconds(bench.step, 60) for bench in (short, long))
    assert slow < 1.5 * fast + 20e-6
