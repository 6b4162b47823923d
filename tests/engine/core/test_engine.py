"""What the batched engine promises beyond tokens: forcing, scores, admission, faults, moves."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from agentmem.engine.core import EngineCore
from agentmem.engine.errors import RequestError
from agentmem.engine.models.alone import Alone
from agentmem.engine.truth import StepRow
from agentmem.engine.turns import Turns
from agentmem.errors import DataError
from tests.engine.core.drive import Answer, run, start


def _prompt(seed: int, length: int = 40) -> list[int]:
    return random.Random(seed).choices(range(97, 123), k=length)


@pytest.fixture
def load(toy_folder: Callable[[str], Path]) -> Iterator[Callable[..., EngineCore]]:
    """Engines on the tiny llama, closed at the end."""
    made: list[EngineCore] = []

    def make(**options: Any) -> EngineCore:
        options = {"mode": "fp32", "threads": 1} | options
        made.append(EngineCore.load(toy_folder("llama"), **options))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


class _Gate:
    """Holds the engine in a listener until it is opened."""

    def __init__(self, engine: EngineCore) -> None:
        self._open, self._there = threading.Event(), threading.Event()
        self.answer = start(engine, [1, 2, 3], self._hold, max_tokens=1)
        assert self._there.wait(30)

    def _hold(self, _delta: object) -> None:
        self._there.set()
        self._open.wait(30)

    def open(self) -> None:
        self._open.set()
        self.answer.wait()


def test_forced_tokens_come_out_and_all_the_work_is_done(engine: EngineCore) -> None:
    forced = tuple(_prompt(2, 30))
    before = engine.stats().steps
    answer = run(engine, _prompt(1), forced=forced, max_tokens=2, reuse=False)
    assert tuple(answer.tokens) == forced
    assert answer.text == bytes(forced).decode()
    record = answer.record
    assert (record.generated_tokens, record.drafted_tokens) == (30, 0)
    assert record.finish_reason == "length"
    assert engine.stats().steps - before == 30
    free = run(engine, _prompt(1), max_tokens=30, drafts=False, reuse=False).record
    assert record.operations == free.operations


def test_forcing_what_was_said_says_it_again(engine: EngineCore) -> None:
    free = run(engine, _prompt(3), max_tokens=24, logprobs=2)
    again = run(engine, _prompt(3), forced=tuple(free.tokens), logprobs=2)
    assert again.tokens == free.tokens
    assert again.text == free.text
    ours, theirs = ([s.logprob for d in a.deltas for s in d.scores] for a in (again, free))
    assert ours == pytest.approx(theirs, abs=1e-4)


def test_forced_text_ends_as_it_ended(engine: EngineCore) -> None:
    assert run(engine, _prompt(4), forced=(97, 258)).record.finish_reason == "stop"
    assert run(engine, _prompt(4), forced=(97, 258, 98)).text == "ab"
    nothing = run(engine, _prompt(4), forced=())
    assert (nothing.tokens, nothing.record.finish_reason) == ([], "stop")
    with pytest.raises(RequestError, match="forced ids"):
        start(engine, _prompt(4), forced=(5000,))
    with pytest.raises(RequestError, match="500 for the answer"):
        start(engine, _prompt(4), forced=(97,) * 500)


def test_scores_are_the_models_own_log_probabilities(engine: EngineCore) -> None:
    prompt = _prompt(5)
    answer = run(engine, prompt, max_tokens=12, logprobs=5, temperature=0.7, seed=3)
    scores = [score for delta in answer.deltas for score in delta.scores]
    assert len(scores) == 12
    text = torch.tensor(prompt + answer.tokens)
    with torch.inference_mode():
        logs = Alone(engine.decoder, 64).run(text).float().log_softmax(-1)[39:]
    for score, row, token in zip(scores, logs, answer.tokens, strict=False):
        assert score.logprob == pytest.approx(float(row[token]), abs=1e-3)
        best = row.topk(5)
        assert [t for t, _ in score.top] == best.indices.tolist()
        assert [p for _, p in score.top] == pytest.approx(best.values.tolist(), abs=1e-3)
    none = run(engine, prompt, max_tokens=2)
    assert all(not delta.scores for delta in none.deltas)
    bare = run(engine, prompt, max_tokens=2, logprobs=0)
    assert [s.top for d in bare.deltas for s in d.scores] == [(), ()]


def test_too_much_queued_background_work_is_refused(load: Callable[..., EngineCore]) -> None:
    engine = load(max_queued_background_tokens=100)
    gate = _Gate(engine)
    kind = {"traffic_class": "background"}
    first = start(engine, _prompt(6, 90), **kind)
    with pytest.raises(RequestError, match="90 background tokens are queued") as caught:
        start(engine, _prompt(7, 11), **kind)
    assert caught.value.code == "overloaded"
    assert caught.value.retry_after_s is not None
    assert 1 <= caught.value.retry_after_s <= 600
    more = [start(engine, _prompt(8, 10), **kind), start(engine, _prompt(9, 400))]
    assert engine.stats().queued_tokens == {"interactive": 400, "background": 100}
    engine.cancel(more[0].request_id)
    gate.open()
    for answer in (first, *more):
        answer.wait()
    assert engine.stats().queued_tokens == {"interactive": 0, "background": 0}
    # a request larger than the whole queue still runs, when it is the only one
    run(engine, _prompt(6, 300), **kind)


def test_a_background_pass_makes_way_for_an_interactive_one(
    load: Callable[..., EngineCore],
) -> None:
    rows: list[StepRow] = []
    engine = load(on_step=rows.append)
    forward, late = engine.decoder.forward, []

    def watched(batch: Any, pages: Any, stop: Any = None) -> Any:
        def ask() -> bool:
            if not late:
                late.append(start(engine, _prompt(11, 20), max_tokens=2))
            return bool(stop())

        return forward(batch, pages, ask if stop is not None else None)

    engine.decoder.forward = watched  # type: ignore[method-assign]
    slow = start(engine, _prompt(10, 400), traffic_class="background", reuse=False, max_tokens=3)
    slow.wait()
    late[0].wait()
    assert [row.completed for row in rows[:2]] == [False, True]
    assert {s.request_id for s in rows[1].shares} == {late[0].request_id, slow.request_id}
    assert [s.rows for s in rows[1].shares] == [20, 128]
    assert engine.stats().interrupted_steps == 1
    assert slow.record.recomputed_tokens == 0, "nothing of the given-up pass was taken over"
    del engine.decoder.forward
    assert slow.tokens == run(engine, _prompt(10, 400), max_tokens=3, reuse=False).tokens


def test_a_pass_that_fails_ends_only_who_is_to_blame(load: Callable[..., EngineCore]) -> None:
    engine = load()
    forward = engine.decoder.forward

    def broken(batch: Any, pages: Any, stop: Any = None) -> Any:
        if 255 in batch.tokens.tolist():
            raise MemoryError("too much")
        return forward(batch, pages, stop)

    engine.decoder.forward = broken  # type: ignore[method-assign]
    gate = _Gate(engine)
    good = start(engine, _prompt(12))
    bad = start(engine, [255, *_prompt(13)])
    gate.open()
    assert bad.wait().record.finish_reason == "abort"
    assert good.wait().record.generated_tokens == 16
    del engine.decoder.forward
    assert run(engine, [255, *_prompt(13)]).record.finish_reason == "length"
    assert engine.stats().kv_blocks_used == 0


class _Broken:
    def allowed(self) -> None:
        raise RuntimeError("a grammar's fault")

    def advance(self, token: int) -> bool:
        return False


def test_a_fault_of_a_grammar_is_its_requests_own(load: Callable[..., EngineCore]) -> None:
    engine = load()
    gate = _Gate(engine)
    answers = [start(engine, _prompt(14)), start(engine, _prompt(14), constraint=_Broken())]
    gate.open()
    assert answers[1].wait().record.finish_reason == "abort"
    assert answers[0].wait().record.generated_tokens == 16


def test_identical_requests_at_once_compute_their_prompt_once(
    load: Callable[..., EngineCore],
) -> None:
    engine = load()
    gate = _Gate(engine)
    answers = [start(engine, _prompt(15, 200), max_tokens=4) for _ in range(4)]
    gate.open()
    computed = [answer.wait().record.uncached_tokens for answer in answers]
    assert computed[0] == 200
    assert sum(computed[1:]) <= 3 * 16
    assert len({tuple(answer.tokens) for answer in answers}) == 1


def test_an_embedder_and_the_engine_take_turns(load: Callable[..., EngineCore]) -> None:
    turns = Turns()
    engine = load(turns=turns)
    assert engine.turns is turns
    with turns.turn("interactive"):
        answer = start(engine, _prompt(16))
        assert not answer.done.wait(0.2), "nothing runs while somebody else has the turn"
        engine.cancel(answer.request_id)
    assert answer.wait().record.finish_reason == "abort"
    assert run(engine, _prompt(16)).record.generated_tokens == 16


def test_stats_count_what_happened(load: Callable[..., EngineCore]) -> None:
    engine = load()
    answers: list[Answer] = [run(engine, _prompt(17), session_id="s") for _ in range(2)]
    stats = engine.stats()
    assert stats.requests == 2
    assert stats.prompt_tokens == 80
    assert stats.cached_tokens == stats.hit_tokens == 39
    assert stats.queried_tokens == 80
    assert stats.generated_tokens == 32
    assert stats.kv_blocks_used == 0
    assert stats.kv_bytes_cached == engine.cached_bytes > 0
    assert stats.sessions == 1
    assert stats.step_s > 0
    (session,) = engine.sessions()
    assert (session.session_id, session.requests, session.generated_tokens) == ("s", 2, 32)
    assert session == engine.session("s")
    assert engine.sessions("else") == []
    assert stats.drafted_tokens == sum(a.record.drafted_tokens for a in answers)


def test_a_session_moves_to_another_engine(load: Callable[..., EngineCore], tmp_path: Path) -> None:
    old, new = load(), load()
    turn = _prompt(18) + run(old, _prompt(18), session_id="s", tenant="t").tokens + _prompt(19)
    out = old.export_session("s", tmp_path / "s.kv", tenant="t", move=True)
    assert out.moved
    assert not old.session_moved("s", "t"), "an offer alone moves nothing"
    taken = new.import_session(tmp_path / "s.kv", tenant="t")
    assert (taken.session_id, taken.epoch) == ("s", out.epoch + 1)
    warm = run(new, turn, session_id="s", tenant="t")
    assert warm.record.cached_tokens == 55
    with pytest.raises(RequestError, match="moved") as caught:
        start(old, turn, session_id="s", tenant="t")
    assert caught.value.code == "session_moved"
    assert warm.tokens == run(old, turn, tenant="t", reuse=False).tokens
    with pytest.raises(DataError):
        new.export_session("unknown", tmp_path / "u.kv")
    other = load(kv="bf16")
    with pytest.raises(DataError, match="kind"):
        other.import_session(tmp_path / "s.kv", tenant="t")


def test_int8_pages_stay_near(load: Callable[..., EngineCore]) -> None:
    plain, small = load(), load(kv="int8")
    assert (plain.kv, small.kv) == ("fp32", "int8")
    tokens = torch.tensor(_prompt(20, 60))
    with torch.inference_mode():
        exact, near = (
            Alone(plain.decoder, 64, kind).run(tokens) for kind in ("fp32", "int8")
        )  # fmt: skip
    assert 0 < (exact - near).abs().mean() < 0.02 * exact.abs().mean()
    first = run(small, _prompt(20), session_id="q")
    warm = run(small, _prompt(20) + first.tokens, session_id="q")
    assert warm.record.cached_tokens == 55


@pytest.mark.parametrize("mode", ["bf16", "int8", "fp8"])
def test_modes_run_and_say_what_they_are(load: Callable[..., EngineCore], mode: str) -> None:
    engine = load(mode=mode)
    assert (engine.mode, engine.kv) == (mode, "bf16")
    answer = run(engine, _prompt(21))
    assert answer.record.generated_tokens == 16
    assert engine.decoder.weights.layers[0].qkv.format == mode
