"""Every family against transformers on the same random weights, whatever the cuts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from agentmem.engine.models.hybrid import Hybrid, HybridState, join
from tests.engine.hybrid.conftest import Pair
from tests.engine.hybrid.toys import TOYS, prompt, worst

AGAINST_OTHERS = 1e-4
AGAINST_OURSELVES = 1e-5


@pytest.fixture(params=sorted(TOYS))
def toy(request: pytest.FixtureRequest, pair: Callable[[str], Pair]) -> Pair:
    return pair(request.param)


def theirs(toy: Pair, tokens: Tensor) -> Tensor:
    with torch.no_grad():
        logits: Tensor = toy.theirs(tokens[None], use_cache=False).logits[0]
    return logits


def cut(model: Hybrid, tokens: Tensor, cuts: Sequence[int]) -> tuple[Tensor, HybridState]:
    """All logits, run in pieces that end at the cuts."""
    state, found = model.start(), []
    for start, stop in pairwise((0, *cuts, len(tokens))):
        logits, state = model.run(tokens[start:stop], state)
        found.append(logits)
    return torch.cat(found), state


def flat(state: HybridState) -> list[Tensor]:
    found: list[Tensor] = []
    for layer in state.layers:
        found += [layer.mamba.conv, layer.mamba.ssm] if layer.mamba else []
        found += layer.attention.of if layer.attention else ()
    return found


def test_prompt_in_one_piece(toy: Pair) -> None:
    tokens = prompt(75)
    logits, _ = toy.ours.run(tokens)
    assert worst(logits, theirs(toy, tokens)) < AGAINST_OTHERS


def test_prompt_in_pieces_and_token_by_token(toy: Pair) -> None:
    tokens = prompt(75)
    whole, at_end = toy.ours.run(tokens)
    wanted = theirs(toy, tokens)
    for cuts in ((1, 3, 20, 67), range(1, 75)):
        logits, state = cut(toy.ours, tokens, cuts)
        assert worst(logits, wanted) < AGAINST_OTHERS
        assert worst(logits, whole) < AGAINST_OURSELVES
        for ours, once in zip(flat(state), flat(at_end), strict=True):
            assert worst(ours, once) < AGAINST_OURSELVES


def test_greedy_tokens_are_the_same(toy: Pair) -> None:
    tokens = prompt(21)
    # with a cache, their single steps forget that time steps have limits; their prompts do not
    limited = toy.ours.config.mamba.dt_limits != (0.0, float("inf"))
    with torch.no_grad():
        wanted = toy.theirs.generate(
            tokens[None],
            attention_mask=torch.ones(1, 21),
            max_new_tokens=64,
            do_sample=False,
            use_cache=not limited,
        )[0, 21:]
    logits, state = toy.ours.run(tokens)
    found: list[int] = []
    for _ in range(64):
        found.append(int(logits[-1].argmax()))
        logits, state = toy.ours.run(torch.tensor(found[-1:]), state)
    assert found == wanted.tolist()
    assert len(set(found)) > 4, "the toy says next to nothing"


def test_sequences_in_one_pass_do_not_see_each_other(toy: Pair) -> None:
    tokens = [prompt(n, seed=n) for n in (40, 33, 9, 5)]
    alone = [toy.ours.run(t)[0] for t in tokens]
    # one goes on with its last token, one with many, one starts, one waits
    known = [toy.ours.run(tokens[0][:39])[1], toy.ours.run(tokens[1][:10])[1], toy.ours.start()]
    waiting = toy.ours.run(tokens[3])[1]
    rows = torch.cat([tokens[0][39:], tokens[1][10:], tokens[2]])
    logits, state = toy.ours.run(rows, join([*known, waiting]), (0, 1, 24, 33, 33))
    wanted = torch.cat([alone[0][39:], alone[1][10:], alone[2]])
    assert worst(logits, wanted) < AGAINST_OURSELVES
    assert state.lengths == (40, 33, 9, 5)
    for ours, before in zip(flat(state.part(3)), flat(waiting), strict=True):
        assert torch.equal(ours, before)
    for ours, once in zip(flat(state.part(1)), flat(toy.ours.run(tokens[1])[1]), strict=True):
        assert worst(ours, once) < AGAINST_OURSELVES


def test_decoding_together_is_decoding_alone(toy: Pair) -> None:
    tokens = [prompt(n, seed=n) for n in (17, 8, 30)]
    states = [toy.ours.run(t[:-1])[1] for t in tokens]
    last = torch.stack([t[-1] for t in tokens])
    logits, _ = toy.ours.run(last, join(states), (0, 1, 2, 3))
    wanted = torch.cat([toy.ours.run(t)[0][-1:] for t in tokens])
    assert worst(logits, wanted) < AGAINST_OURSELVES


def test_a_state_can_be_gone_on_from_twice(toy: Pair) -> None:
    _, state = toy.ours.run(prompt(12))
    before = [t.clone() for t in flat(state)]
    first, _ = toy.ours.run(prompt(5, seed=8), state)
    again, _ = toy.ours.run(prompt(5, seed=8), state)
    toy.ours.run(prompt(1, seed=9), state)
    assert torch.equal(first, again)
    assert all(torch.equal(was, now) for was, now in zip(before, flat(state), strict=True))


def test_bytes_of_a_state(toy: Pair) -> None:
    _, state = toy.ours.run(prompt(12))
    assert state.size_bytes == sum(t.nbytes for t in flat(state)) > 0
