"""Random mixes of everything against one request at a time: the same tokens, all blocks back."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentmem.engine.core import EngineCore
from tests.engine.core.drive import Answer, run, start

WINDOW = 160


def _text(rng: random.Random, length: int) -> list[int]:
    """A text with repetitions, so that drafts are made and some are right."""
    words = [rng.choices(range(97, 123), k=rng.randint(2, 6)) for _ in range(4)]
    out: list[int] = []
    while len(out) < length:
        out += rng.choice(words)
    return out[:length]


class _Letters:
    """A grammar: only ids below a bound, complete after some tokens."""

    def __init__(self, bound: int, tokens: int) -> None:
        self.bound, self.left = bound, tokens

    def allowed(self) -> Any:
        return [i < self.bound for i in range(259)]

    def advance(self, token: int) -> bool:
        assert token < self.bound
        self.left -= 1
        return self.left == 0


def _wishes(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Requests that share beginnings, sessions, tenants; greedy and sampled, some constrained."""
    roots = [_text(rng, rng.randint(20, 70)) for _ in range(3)]
    made = []
    for _ in range(count):
        prompt = rng.choice(roots)[: rng.randint(1, 70)] + _text(rng, rng.randint(0, 40))
        wish: dict[str, Any] = {
            "prompt": prompt,
            "max_tokens": rng.randint(1, 40),
            "traffic_class": rng.choice(["interactive", "background"]),
            "tenant": rng.choice([None, "t"]),
            "session_id": rng.choice([None, "s", "r"]),
            "seed": rng.randint(0, 99),
            "logprobs": rng.choice([None, 0, 3]),
        }
        if rng.random() < 0.3:
            wish |= {"temperature": 0.9, "top_p": 0.9, "top_k": rng.choice([0, 40])}
        if rng.random() < 0.2:
            wish["letters"] = (rng.randint(100, 259), rng.randint(1, 30))
        if rng.random() < 0.2:
            wish["forced"] = tuple(_text(rng, rng.randint(1, 20)))
        made.append(wish)
    return made


def _start(engine: EngineCore, wish: dict[str, Any], **more: Any) -> Answer:
    fields = {k: v for k, v in wish.items() if k not in ("letters", "forced")} | more
    if "letters" in wish:
        fields["constraint"] = _Letters(*wish["letters"])
    if "forced" in wish:
        fields["forced"] = wish["forced"]
    return start(engine, fields.pop("prompt"), **fields)


_KINDS = [
    ("llama", "fp32", "torch"),
    ("gemma3", "fp32", "torch"),
    *(
        pytest.param(kind, marks=pytest.mark.slow)
        for kind in [
            ("qwen2_sliding", "fp32", "torch"),
            ("llama", "bf16", "torch"),
            ("gemma3", "int8", "torch"),
            ("llama", "int8", "native"),
            ("gemma3", "bf16", "native"),
        ]
    ),
]


@pytest.fixture(scope="module", params=_KINDS, ids=lambda kind: "-".join(kind))
def pair(
    request: pytest.FixtureRequest, toy_folder: Callable[[str], Path]
) -> Iterator[tuple[EngineCore, EngineCore]]:
    """An engine with room for little, and one to ask one by one."""
    name, mode, backend = request.param
    if backend == "native":
        native = pytest.importorskip("agentmem.engine.kernels.native")
        if native.WHY_NOT:
            pytest.skip(native.WHY_NOT)
    folder = toy_folder(name)
    common: dict[str, Any] = {
        "mode": mode, "threads": 1, "window": WINDOW, "invariant": True, "backend": backend,
    }  # fmt: skip
    small = EngineCore.load(folder, cache_bytes=0, step_tokens=48, max_running=6, **common)
    plain = EngineCore.load(folder, drafts=False, **common)
    yield small, plain
    small.close()
    plain.close()


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3, 4))])
def test_a_crowd_says_what_each_says_alone(pair: tuple[EngineCore, EngineCore], seed: int) -> None:
    small, plain = pair
    rng = random.Random(seed)
    wishes = _wishes(rng, 12)
    answers = [_start(small, wish) for wish in wishes]
    dropped = rng.sample(range(len(wishes)), 3)
    for at in dropped:
        threading.Event().wait(0.01)
        small.cancel(answers[at].request_id)
    for wish, answer in zip(wishes, answers, strict=True):
        alone = _start(plain, wish, reuse=False).wait()
        answer.wait()
        if answer.record.finish_reason == "abort":
            assert alone.tokens[: len(answer.tokens)] == answer.tokens
            continue
        assert answer.tokens == alone.tokens, wish
        assert answer.text == alone.text
        assert answer.record.finish_reason == alone.record.finish_reason
        scores, expected = ([s for d in a.deltas for s in d.scores] for a in (answer, alone))
        assert scores == expected
    stats = small.stats()
    assert stats.kv_blocks_used == 0
    assert stats.running == stats.waiting == {"interactive": 0, "background": 0}
    assert stats.queued_tokens == {"interactive": 0, "background": 0}


def test_what_the_crowd_went_through(pair: tuple[EngineCore, EngineCore]) -> None:
    """The mixes above do what they are for."""
    small, _ = pair
    stats = small.stats()
    assert stats.preemptions > 0
    assert stats.recomputed_tokens > 0
    assert stats.evictions > 0
    assert stats.accepted_tokens > 0
    assert stats.drafted_tokens > stats.accepted_tokens
    assert stats.hit_tokens > 0


def test_a_preempted_request_counts_its_prompt_once(pair: tuple[EngineCore, EngineCore]) -> None:
    small, plain = pair
    rng = random.Random(5)
    prompts = [_text(rng, 80) for _ in range(4)]
    before = small.stats().preemptions
    answers = [start(small, p, max_tokens=60, reuse=False) for p in prompts]
    for prompt, answer in zip(prompts, answers, strict=True):
        record = answer.wait().record
        assert answer.tokens == run(plain, prompt, max_tokens=60, reuse=False).tokens
        assert (record.uncached_tokens, record.cached_tokens) == (80, 0)
        assert (record.preemptions > 0) == (record.recomputed_tokens > 0)
    assert small.stats().preemptions > before
