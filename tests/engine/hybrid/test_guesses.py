"""Guessed tokens: what is kept of them, and what a state is after the rest is taken back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from agentmem.engine.models.hybrid import Hybrid, join
from tests.engine.hybrid.conftest import Pair
from tests.engine.hybrid.test_logits import AGAINST_OURSELVES, flat
from tests.engine.hybrid.toys import prompt, worst

TOYS = ["bamba", "falcon", "mamba2", "nemotron"]


@pytest.mark.parametrize("name", TOYS)
@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_state_is_that_of_the_tokens_kept(
    pair: Callable[[str], Pair], name: str, kept: int
) -> None:
    model, tokens = pair(name).ours, prompt(30)
    other = prompt(12, seed=5)
    known = join([model.run(tokens[:20])[1], model.run(other[:11])[1]])
    # one certain token and three guesses, beside a sequence that has none
    rows = torch.cat([tokens[20:24], other[11:]])
    logits, state = model.run(rows, known, (0, 4, 5), guesses={0: 3})
    wanted, _ = model.run(tokens[:24])
    assert worst(logits[:4], wanted[20:]) < AGAINST_OURSELVES
    after = state.part(0, dropped=3 - kept)
    _, alone = model.run(tokens[: 21 + kept])
    assert after.lengths == alone.lengths == (21 + kept,)
    for ours, once in zip(flat(after), flat(alone), strict=True):
        assert ours.shape == once.shape
        assert worst(ours, once) < AGAINST_OURSELVES
    # and another way on from there
    new = prompt(6, seed=9)
    ahead, _ = model.run(new, after)
    assert worst(ahead, model.run(torch.cat([tokens[: 21 + kept], new]))[0][-6:]) < (
        AGAINST_OURSELVES
    )


def greedy(model: Hybrid, start: torch.Tensor, count: int) -> list[int]:
    logits, state = model.run(start)
    found: list[int] = []
    for _ in range(count):
        found.append(int(logits[-1].argmax()))
        logits, state = model.run(torch.tensor(found[-1:]), state)
    return found


@pytest.mark.parametrize("name", ["granite_dense", "mamba2"])
def test_guessing_changes_no_token(pair: Callable[[str], Pair], name: str) -> None:
    model, start = pair(name).ours, prompt(16)
    wanted = greedy(model, start, 24)
    logits, state = model.run(start)
    found = [int(logits[-1].argmax())]
    accepted = 0
    while len(found) < 24:
        # right, right, wrong: the wrong one and what stands behind it must leave no trace
        right = wanted[len(found) : len(found) + 2]
        tried = [*right, (wanted[0] + 1) % 256, 7]
        rows = torch.tensor([found[-1], *tried])
        logits, after = model.run(rows, state, guesses={0: len(tried)})
        said = logits.argmax(1).tolist()
        good = 0
        while good < len(tried) and tried[good] == said[good]:
            good += 1
        found += said[: good + 1]
        accepted += good
        state = after.part(0, dropped=len(tried) - good)
    assert found[:24] == wanted
    assert accepted >= 12


def test_only_guesses_can_be_taken_back(pair: Callable[[str], Pair]) -> None:
    model = pair("bamba").ours
    _, state = model.run(prompt(5), guesses={0: 2})
    for dropped in (-1, 3):
        with pytest.raises(ValueError, match="cannot be taken back"):
            state.part(0, dropped=dropped)
    with pytest.raises(ValueError, match="cannot be 5 guesses"):
        model.run(prompt(5), guesses={0: 5})
    _, state = model.run(prompt(1), state.part(0))
    with pytest.raises(ValueError, match="cannot be taken back"):
        state.part(0, dropped=1)


def test_rows_must_be_cut_whole(pair: Callable[[str], Pair]) -> None:
    model = pair("bamba").ours
    for starts in ((0, 3), (0, 4, 5), (1, 5), (0, 2, 1, 5)):
        with pytest.raises(ValueError, match="do not cut 5 rows"):
            model.run(prompt(5), starts=starts)


def test_logits_of_some_rows_only(pair: Callable[[str], Pair]) -> None:
    model, tokens = pair("falcon").ours, prompt(20)
    wanted, _ = model.run(tokens)
    logits, _ = model.run(tokens, outputs=torch.tensor([4, 19]))
    assert worst(logits, wanted[[4, 19]]) < AGAINST_OURSELVES
    nothing, state = model.run(tokens, outputs=torch.tensor([], dtype=torch.long))
    assert nothing.shape == (0, 256)
    assert state.lengths == (20,)
