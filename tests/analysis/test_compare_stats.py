"""The statistics of `compare`: how often it is wrong, how often it sees what is there."""

from __future__ import annotations

import math

import numpy as np
import pytest

from agentmem.analysis.bootstrap import Floats, interval, resample, sign_test, student_t
from agentmem.analysis.compare_metrics import METRICS, Metric
from agentmem.analysis.compare_verdict import Judged, Pairs, Terms, judge

BY_KEY = {m.key: m for m in METRICS}
SECONDS, TOKENS = BY_KEY["generation.seconds"], BY_KEY["generation.tokens"]
ACCURACY = BY_KEY["question.accuracy"]
TRIALS = 200


def pairs(a: Floats, b: Floats, histories: list[str] | None = None) -> Pairs:
    named = tuple(histories or ["h"] * len(a))
    return Pairs(np.asarray(a, float), np.asarray(b, float), named, 0, 0, 0)


def verdict_of(metric: Metric, found: Pairs, margin: float, fixed: bool = True) -> Judged:
    return judge(metric, found, Terms(margin, 0.95, 0, fixed, metric.key))


def timed(rng: np.random.Generator, n: int, effect: float, noise: float, drift: float) -> Pairs:
    """Two runs over the same questions: own noise per question, one drift per run."""
    true = rng.lognormal(0.0, 0.7, n)
    sides = [true * rng.lognormal(0, noise, n) * rng.lognormal(0, drift) for _ in range(2)]
    return pairs(sides[0], sides[1] * effect)


def share(verdicts: list[str], *which: str) -> float:
    return sum(v in which for v in verdicts) / len(verdicts)


@pytest.mark.parametrize("n", [6, 20])
def test_without_margin_and_drift_one_in_twenty_is_false(n: int) -> None:
    rng = np.random.default_rng(11)
    null = [timed(rng, n, 1.0, 0.2, 0.0) for _ in range(TRIALS)]
    found = [verdict_of(SECONDS, p, 0.0).verdict for p in null]
    wrong = share(found, "better", "worse")
    assert wrong <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / TRIALS), wrong


def test_a_drifting_machine_is_held_back_by_the_margin() -> None:
    rng = np.random.default_rng(12)
    drifted = [timed(rng, 20, 1.0, 0.05, 0.04) for _ in range(80)]
    bare = share([verdict_of(SECONDS, p, 0.0).verdict for p in drifted], "better", "worse")
    held = share([verdict_of(SECONDS, p, 0.10).verdict for p in drifted], "better", "worse")
    assert bare > 0.3, "pairs of two runs cannot tell drift from a change"
    assert held <= 0.05


def test_a_planted_effect_is_seen() -> None:
    rng = np.random.default_rng(13)
    found = [verdict_of(SECONDS, timed(rng, 20, 1.4, 0.15, 0.03), 0.10).verdict for _ in range(60)]
    assert share(found, "worse") >= 0.9
    assert share(found, "better") == 0


@pytest.mark.slow
def test_questions_of_one_history_are_not_independent() -> None:
    """Histories that differ in what a change does to them: pairs alone would be too sure."""
    rng = np.random.default_rng(14)
    clustered, alone = [], []
    for _ in range(100):
        effect = np.repeat(rng.normal(0, 0.5, 8), 10)
        a = rng.normal(0, 1, 80)
        b = a + effect + rng.normal(0, 0.5, 80)
        names = [f"h{i // 10}" for i in range(80)]
        for labels, into in ((names, clustered), (["all"] * 80, alone)):
            draws = resample(a, b, labels, 0, "x")
            low, high = interval((draws.b - draws.a) / draws.pairs, draws.free, 0.95) or (0, 0)
            into.append(low > 0 or high < 0)
    assert np.mean(alone) > 0.3
    assert np.mean(clustered) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 100) + 0.02


def test_swapping_sides_swaps_the_verdict() -> None:
    rng = np.random.default_rng(15)
    opposite = {"better": "worse", "worse": "better"}
    seen = set()
    for effect in (0.6, 0.85, 1.0, 1.15, 1.7):
        p = timed(rng, 15, effect, 0.1, 0.0)
        there = verdict_of(SECONDS, p, 0.1).verdict
        back = verdict_of(SECONDS, pairs(p.b, p.a), 0.1).verdict
        assert back == opposite.get(there, there)
        seen.add(there)
    assert {"better", "worse"} <= seen


def test_the_same_seed_gives_the_same_interval() -> None:
    p = timed(np.random.default_rng(1), 12, 1.1, 0.2, 0.0)
    first, second = (verdict_of(SECONDS, p, 0.1) for _ in range(2))
    assert first == second
    other = judge(SECONDS, p, Terms(0.1, 0.95, 1, True, SECONDS.key))
    assert other.change_low != first.change_low
    assert other.change_low == pytest.approx(first.change_low, abs=0.02)


def test_equal_counts_are_equal_and_one_token_is_worse() -> None:
    same = np.full(6, 100.0)
    assert verdict_of(TOKENS, pairs(same, same), 0.0).verdict == "equal"
    more = same.copy()
    more[2] += 1
    found = verdict_of(TOKENS, pairs(same, more), 0.0)
    assert (found.verdict, found.differing) == ("worse", 1)
    assert found.note == "1 of 6 pairs differ"
    assert verdict_of(TOKENS, pairs(same, more), 0.01).verdict == "no difference shown"


def test_counts_that_differ_both_ways_need_an_interval() -> None:
    rng = np.random.default_rng(3)
    a = np.full(40, 100.0)
    b = a + rng.integers(-9, 10, 40)
    assert verdict_of(TOKENS, pairs(a, b), 0.0).verdict == "no difference shown"
    assert verdict_of(TOKENS, pairs(a, b + 40), 0.0).verdict == "worse"


def test_under_native_sampling_equal_is_luck() -> None:
    same = np.full(6, 100.0)
    found = verdict_of(TOKENS, pairs(same, same), 0.0, fixed=False)
    assert found.verdict == "no difference shown"
    odd = verdict_of(TOKENS, pairs(same[:4], same[:4] + 1), 0.0, fixed=False)
    assert odd.verdict == "no difference shown" and "too few" in odd.note


def test_tokens_where_there_were_none() -> None:
    found = verdict_of(TOKENS, pairs(np.zeros(6), np.full(6, 5.0)), 0.0)
    assert (found.verdict, found.change, found.difference) == ("worse", None, 5.0)
    assert verdict_of(TOKENS, pairs(np.zeros(6), np.zeros(6)), 0.0).verdict == "equal"


def test_a_few_pairs_of_times_carry_no_verdict() -> None:
    found = verdict_of(SECONDS, pairs(np.ones(4), np.full(4, 3.0)), 0.1)
    assert (found.verdict, found.change) == ("no difference shown", pytest.approx(2.0))
    assert "too few" in found.note


def test_milliseconds_are_left_to_the_scheduler() -> None:
    found = verdict_of(SECONDS, pairs(np.full(9, 0.002), np.full(9, 0.004)), 0.1)
    assert (found.verdict, found.note) == ("no difference shown", "less than 5 ms each")


def test_four_lost_answers_are_not_enough_and_twelve_are() -> None:
    right = np.ones(40)
    for lost, expected in ((4, "no difference shown"), (12, "worse")):
        b = right.copy()
        b[:lost] = 0
        found = verdict_of(ACCURACY, pairs(right, b), 0.0)
        assert found.verdict == expected, lost
    assert verdict_of(ACCURACY, pairs(b, right), 0.0).verdict == "better"


def test_student_t_against_a_printed_table() -> None:
    table = {1: 12.706, 2: 4.303, 5: 2.571, 10: 2.228, 30: 2.042, 120: 1.980}
    for free, expected in table.items():
        assert student_t(0.975, free) == pytest.approx(expected, abs=1.5e-3)


def test_sign_test_against_counting() -> None:
    assert sign_test(np.array([1, 1, 1, 1, 1, 0])) == pytest.approx(2 / 32)
    assert sign_test(np.array([1, -1])) == 1.0
    assert sign_test(np.zeros(3)) == 1.0


def test_no_interval_from_one_thing() -> None:
    draws = resample(np.ones(1), np.ones(1), ["h"], 0, "x")
    assert interval(draws.b / draws.a, draws.free, 0.95) is None
