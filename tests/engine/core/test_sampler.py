"""Choosing tokens."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from agentmem.engine.request import Sampling
from agentmem.engine.sampler import (
    ConstraintDeadEndError,
    Sampler,
    keep_top_k,
    keep_top_p,
)

PROBABILITIES = torch.tensor([0.5, 0.25, 0.15, 0.07, 0.03])
LOGITS = PROBABILITIES.log()


def _frequencies(sampling: Sampling, draws: int = 4000) -> list[float]:
    sampler = Sampler(sampling)
    counts = Counter(sampler.choose(LOGITS, i) for i in range(draws))
    return [counts[i] / draws for i in range(5)]


def test_greedy_takes_the_best() -> None:
    assert Sampler(Sampling(temperature=0.0, seed=1)).choose(LOGITS, 0) == 0


def test_sampling_follows_the_probabilities() -> None:
    found = _frequencies(Sampling(temperature=1.0, seed=3))
    assert found == pytest.approx(PROBABILITIES.tolist(), abs=0.03)


def test_temperature_sharpens() -> None:
    sharp = PROBABILITIES**2 / (PROBABILITIES**2).sum()
    found = _frequencies(Sampling(temperature=0.5, seed=3))
    assert found == pytest.approx(sharp.tolist(), abs=0.03)


def test_top_k_and_top_p_drop_the_tail() -> None:
    assert _frequencies(Sampling(temperature=1.0, top_k=2, seed=3))[2:] == [0, 0, 0]
    found = _frequencies(Sampling(temperature=1.0, top_p=0.76, seed=3))
    assert found[3:] == [0, 0]
    assert found[2] > 0.1, "the token that reaches p belongs to it"


@pytest.mark.parametrize(("p", "kept"), [(1.0, 5), (0.9, 3), (0.89, 3), (0.5, 1), (0.01, 1)])
def test_top_p_keeps_the_fewest_that_reach_p(p: float, kept: int) -> None:
    shuffled = LOGITS[[3, 0, 4, 1, 2]]
    assert int(torch.isfinite(keep_top_p(shuffled, p)).sum()) == kept


def test_top_k_of_all_or_none_keeps_everything() -> None:
    for k in (0, 5, 99):
        assert torch.equal(keep_top_k(LOGITS, k), LOGITS)


def test_a_seed_fixes_the_draws() -> None:
    wish = Sampling(temperature=1.0, seed=2**64 - 1)
    first, second = Sampler(wish), Sampler(wish)
    assert [first.choose(LOGITS, i) for i in range(50)] == [
        second.choose(LOGITS, i) for i in range(50)
    ]


class _Mask:
    def __init__(self, mask: object) -> None:
        self.mask = mask

    def allowed(self) -> object:
        return self.mask

    def advance(self, token: int) -> bool:
        return token == 4


def test_a_mask_rules_greedy_and_sampled() -> None:
    mask = np.array([False, False, True, False, True])
    assert Sampler(Sampling(), _Mask(mask)).choose(LOGITS, 0) == 2
    drawn = Sampler(Sampling(temperature=5.0, seed=1), _Mask(mask))
    assert {drawn.choose(LOGITS, i) for i in range(200)} == {2, 4}
    assert torch.isfinite(LOGITS).all(), "the logits themselves stay as they are"


def test_a_short_mask_forbids_the_rest_and_none_allows_all() -> None:
    assert Sampler(Sampling(), _Mask(np.array([False, True]))).choose(LOGITS, 0) == 1
    assert Sampler(Sampling(), _Mask(None)).choose(LOGITS, 0) == 0


def test_a_mask_of_nothing_is_a_dead_end() -> None:
    with pytest.raises(ConstraintDeadEndError):
        Sampler(Sampling(), _Mask(np.zeros(5, dtype=bool))).choose(LOGITS, 0)


def test_only_a_constraint_says_complete() -> None:
    assert Sampler(Sampling(), _Mask(None)).advance(4)
    assert not Sampler(Sampling(), _Mask(None)).advance(3)
    assert not Sampler(Sampling()).advance(4)
