"""Generated tokens, sessions and accounts on a tiny model."""

from __future__ import annotations

import random
import threading

import pytest
import torch
from transformers import AutoModelForCausalLM

from agentmem.engine.core import EngineCore
from agentmem.engine.errors import RequestError
from agentmem.engine.scheduler import Limits
from tests.engine.core.drive import run, start


def _prompt(seed: int, length: int = 40) -> list[int]:
    return random.Random(seed).choices(range(97, 123), k=length)


@pytest.mark.parametrize("name", ["llama", "qwen2_sliding", "gemma3"])
def test_greedy_tokens_are_those_of_transformers(toy_folder, name: str) -> None:
    theirs = AutoModelForCausalLM.from_pretrained(toy_folder(name), dtype=torch.float32).eval()
    engine = EngineCore.load(toy_folder(name), mode="fp32", threads=1)
    for seed in range(5):
        prompt = _prompt(seed)
        expected = list(prompt)
        with torch.inference_mode():
            for _ in range(16):
                # the whole text again each time: no cache on the other side
                expected.append(int(theirs(torch.tensor([expected])).logits[0, -1].argmax()))
        assert run(engine, prompt).tokens == expected[len(prompt) :]
    engine.close()


def test_a_second_turn_reuses_the_first_and_says_the_same(engine: EngineCore) -> None:
    first = run(engine, _prompt(1), session_id="s1", tenant="t")
    turn = _prompt(1) + first.tokens + _prompt(2, 30)
    warm = run(engine, turn, session_id="s1", tenant="t")
    cold = run(engine, turn, reuse=False)
    assert warm.tokens == cold.tokens
    # all but the last generated token had been run
    assert warm.record.cached_tokens == 40 + 16 - 1
    assert warm.record.uncached_tokens == len(turn) - 55
    assert cold.record.cached_tokens == 0
    assert cold.record.uncached_tokens == len(turn)


def test_the_same_prompt_again_runs_one_token(engine: EngineCore) -> None:
    first = run(engine, _prompt(3), session_id="again")
    again = run(engine, _prompt(3), session_id="again")
    assert again.tokens == first.tokens
    assert (again.record.cached_tokens, again.record.uncached_tokens) == (39, 1)


def test_sessions_share_what_is_the_same_and_tenants_nothing(engine: EngineCore) -> None:
    prompt = _prompt(4)
    first = run(engine, prompt, session_id="a", tenant="mine")
    for session in ("b", None):
        other = run(engine, prompt, session_id=session, tenant="mine")
        assert other.record.cached_tokens == 39
        assert other.tokens == first.tokens
    for tenant in ("other", "one more"):
        other = run(engine, prompt, session_id="a", tenant=tenant)
        assert other.record.cached_tokens == 0
        assert other.tokens == first.tokens


def test_branches_of_a_session_do_not_disturb_each_other(engine: EngineCore) -> None:
    root = _prompt(5)
    run(engine, root, session_id="tree")
    left, right = root + _prompt(6, 20), root + _prompt(7, 20)
    for _ in range(2):
        for branch in (left, right):
            warm = run(engine, branch, session_id="tree")
            assert warm.record.cached_tokens >= 40
            assert warm.tokens == run(engine, branch, reuse=False).tokens


def test_two_requests_of_one_session_at_once_both_run(engine: EngineCore) -> None:
    prompts = [_prompt(8) + _prompt(seed, 10) for seed in (9, 10)]
    answers = [start(engine, p, session_id="both") for p in prompts]
    for prompt, answer in zip(prompts, answers, strict=True):
        assert answer.wait().tokens == run(engine, prompt, reuse=False).tokens


def test_a_cancelled_request_leaves_the_session_as_it_was(engine: EngineCore) -> None:
    first = run(engine, _prompt(11), session_id="cut")
    turn = _prompt(11) + first.tokens + _prompt(12, 20)
    seen = threading.Event()
    cut = start(
        engine, turn, lambda _d: seen.set(), session_id="cut", max_tokens=300, request_id="cut"
    )
    assert seen.wait(60)
    assert engine.cancel("cut")
    cut.wait()
    assert cut.record.finish_reason == "abort"
    assert 0 < cut.record.generated_tokens < 300
    assert cut.deltas[-1].finish_reason == "abort"
    warm = run(engine, turn, session_id="cut")
    assert warm.record.cached_tokens >= 55
    assert warm.tokens == run(engine, turn, reuse=False).tokens
    assert not engine.cancel("cut"), "it is not known any more"


def test_a_request_is_cancelled_while_it_waits(engine: EngineCore) -> None:
    long = start(engine, _prompt(13), max_tokens=200)
    waiting = start(engine, _prompt(14), request_id="waiting")
    assert engine.cancel("waiting")
    record = waiting.wait().record
    assert (record.finish_reason, record.generated_tokens, record.uncached_tokens) == (
        "abort",
        0,
        0,
    )
    assert record.ttft_s is None
    assert record.queue_s > 0
    assert long.wait().record.generated_tokens == 200


def test_a_long_prompt_is_cancelled_between_its_chunks(toy_folder) -> None:
    engine = EngineCore.load(toy_folder("llama"), mode="fp32", threads=1)
    engine._worker.scheduler.limits = Limits(step_tokens=8)
    gate = threading.Event()
    # a step of another request holds the engine until the cancellation is in
    first = start(engine, _prompt(1, 8), lambda _d: gate.wait(30), max_tokens=1)
    long = start(engine, _prompt(15, 400), request_id="long")
    engine.cancel("long")
    gate.set()
    first.wait()
    assert long.wait().record.uncached_tokens < 400
    engine.close()


def test_interactive_requests_overtake_background_ones(engine: EngineCore) -> None:
    order: list[str] = []
    slow = start(
        engine, _prompt(16), lambda _d: order.append("slow"), max_tokens=200,
        traffic_class="background",
    )  # fmt: skip
    while len(order) < 5:
        slow.done.wait(0.001)
    late = start(engine, _prompt(17), lambda _d: order.append("late"))
    late.wait()
    assert not slow.done.is_set(), "the background request was still running"
    slow.wait()
    ends = {name: len(order) - order[::-1].index(name) for name in ("slow", "late")}
    assert ends["late"] < ends["slow"]
    assert slow.tokens == run(engine, _prompt(16), max_tokens=200).tokens
    # they ran side by side, and each step is split between them
    both = slow.record.prefill_s + slow.record.decode_s
    assert 0 < slow.record.step_share_s < both


def test_the_account_adds_up(engine: EngineCore) -> None:
    record = run(engine, _prompt(18), session_id="sum", tenant="t").record
    assert (record.session_id, record.tenant) == ("sum", "t")
    assert record.traffic_class == "interactive"
    assert record.uncached_tokens + record.cached_tokens == 40
    assert record.generated_tokens == 16
    assert record.finish_reason == "length"
    assert record.step_share_s == pytest.approx(record.prefill_s + record.decode_s)
    assert record.ttft_s is not None
    assert 0 < record.prefill_s <= record.ttft_s + 0.05
    assert record.decode_s > 0
    assert record.cpu_s is not None
    assert 0 < record.cpu_s <= 1.5 * (record.prefill_s + record.decode_s) + 0.05
    # 3 layers, keys and values, 2 heads of 16, float32: four blocks of 16 for 55 positions
    assert record.state_bytes == 3 * 2 * 2 * 16 * 4 * 4 * 16


def test_chunked_prefill_says_the_same(engine: EngineCore) -> None:
    prompt = _prompt(19, 300)
    whole = run(engine, prompt)
    scheduler = engine._worker.scheduler
    usual, scheduler.limits = scheduler.limits, Limits(step_tokens=37)
    pieces = run(engine, prompt, reuse=False)
    scheduler.limits = usual
    assert pieces.tokens == whole.tokens
    assert pieces.record.uncached_tokens == 300


def test_sampling_depends_on_its_seed_alone(engine: EngineCore) -> None:
    wish = {"temperature": 1.0, "top_p": 0.95, "top_k": 50}
    alone = run(engine, _prompt(20), seed=7, **wish).tokens
    crowd = [start(engine, _prompt(20), seed=seed, **wish) for seed in (1, 7, 2)]
    assert crowd[1].wait().tokens == alone
    assert crowd[0].wait().tokens != alone
    unseeded = {tuple(run(engine, _prompt(20), **wish).tokens) for _ in range(3)}
    assert len(unseeded) > 1


def test_the_end_token_ends_the_text_unless_ignored(toy_folder, engine: EngineCore) -> None:
    tokens = run(engine, _prompt(21)).tokens
    ender = EngineCore.load(toy_folder("llama"), mode="fp32", threads=1)
    ender._worker._eos = frozenset({tokens[4]})
    ended = run(ender, _prompt(21), ignore_eos=False)
    assert ended.tokens == tokens[: tokens.index(tokens[4]) + 1]
    assert ended.record.finish_reason == "stop"
    assert run(ender, _prompt(21), ignore_eos=True).tokens == tokens
    ender.close()


def test_a_stop_string_ends_the_text_before_it(engine: EngineCore) -> None:
    free = run(engine, _prompt(22), max_tokens=24)
    at = next(i for i in range(4, 20) if free.text[i : i + 2].isprintable())
    stop = free.text[at : at + 2]
    stopped = run(engine, _prompt(22), max_tokens=24, stop=(stop,))
    assert stopped.text == free.text[: free.text.index(stop)]
    assert stopped.record.finish_reason == "stop"
    assert stopped.record.generated_tokens == len(stopped.tokens) < 24
    assert [d.finish_reason for d in stopped.deltas[:-1]] == [None] * (len(stopped.deltas) - 1)


def test_what_cannot_run_is_refused_with_a_code(engine: EngineCore) -> None:
    cases = [
        ({"prompt": []}, "invalid_prompt", "empty"),
        ({"prompt": [1, 259]}, "invalid_prompt", r"0\.\.258"),
        ({"prompt": [-1]}, "invalid_prompt", "ids"),
        ({"prompt": [1] * 512}, "context_length_exceeded", "512 tokens; the prompt has 512 and 16"),
        ({"prompt": [1] * 500, "max_tokens": 13}, "context_length_exceeded", "and 13"),
        ({"prompt": [1], "temperature": -1.0}, "invalid_sampling", "temperature"),
        ({"prompt": [1], "temperature": float("nan")}, "invalid_sampling", "temperature"),
        ({"prompt": [1], "top_p": 0.0}, "invalid_sampling", "top_p"),
        ({"prompt": [1], "top_k": -1}, "invalid_sampling", "top_k"),
        ({"prompt": [1], "max_tokens": 0}, "invalid_sampling", "max_tokens"),
    ]
    for fields, code, words in cases:
        with pytest.raises(RequestError, match=words) as caught:
            start(engine, **fields)
        assert caught.value.code == code
    full = run(engine, [1] * 500, max_tokens=12)
    assert full.record.generated_tokens == 12, "exactly the window fits"


def test_without_a_wish_the_window_bounds_the_answer(engine: EngineCore) -> None:
    assert run(engine, [97] * 500, max_tokens=None).record.generated_tokens == 12
    assert run(engine, [97] * 20, max_tokens=None).record.generated_tokens == 256


def test_a_name_in_use_is_refused_and_free_again_afterwards(engine: EngineCore) -> None:
    first = start(engine, _prompt(23), request_id="twin", max_tokens=100)
    with pytest.raises(RequestError, match="twin"):
        start(engine, _prompt(23), request_id="twin")
    first.wait()
    run(engine, _prompt(23), request_id="twin")


def test_a_listener_that_fails_hurts_nobody_else(engine: EngineCore) -> None:
    def fail(_delta: object) -> None:
        raise RuntimeError("listener")

    bad = start(engine, _prompt(24), fail)
    good = start(engine, _prompt(25))
    assert bad.wait().record.finish_reason == "abort"
    assert good.wait().record.generated_tokens == 16


def test_closing_ends_everything_once(toy_folder) -> None:
    engine = EngineCore.load(toy_folder("llama"), mode="fp32", threads=1)
    answers = [start(engine, _prompt(seed), max_tokens=400) for seed in range(3)]
    engine.close()
    for answer in answers:
        assert answer.wait().record.finish_reason == "abort"
    with pytest.raises(RequestError, match="closed"):
        start(engine, _prompt(1))
    engine.close()


def test_a_session_can_be_forgotten(engine: EngineCore) -> None:
    run(engine, _prompt(26), session_id="gone", tenant="t")
    run(engine, _prompt(26), session_id="kept", tenant="t")
    before = engine.cached_bytes
    assert engine.drop_session("gone", "t") == 0, "the other session has all of it"
    freed = engine.drop_session("kept", "t")
    assert freed > 0
    assert engine.cached_bytes == before - freed
    assert engine.session("kept", "t") is None
    assert run(engine, _prompt(26), session_id="kept", tenant="t").record.cached_tokens == 0
    assert engine.drop_session("never seen") == 0


class _Only:
    """Allows one id after the other, then is complete."""

    def __init__(self, wanted: list[int], width: int) -> None:
        self.left, self.width = list(wanted), width

    def allowed(self) -> object:
        mask = [False] * self.width
        if self.left:
            mask[self.left[0]] = True
        return mask

    def advance(self, token: int) -> bool:
        assert token == self.left.pop(0)
        return not self.left


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_a_constraint_rules_the_tokens_and_the_end(engine: EngineCore, temperature: float) -> None:
    wanted = list(b'{"a": 1}')
    for width in (259, 200):
        only = _Only(wanted, width)
        answer = run(engine, _prompt(27), constraint=only, temperature=temperature)
        assert answer.text == '{"a": 1}'
        assert answer.record.finish_reason == "stop"


def test_a_constraint_that_allows_nothing_ends_the_text(engine: EngineCore) -> None:
    only = _Only([], 259)
    record = run(engine, _prompt(28), constraint=only).record
    assert (record.finish_reason, record.generated_tokens) == ("stop", 0)
    assert run(engine, _prompt(28)).record.generated_tokens == 16
