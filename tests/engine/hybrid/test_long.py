"""Long prompts in random pieces, for minutes; and bfloat16."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from agentmem.engine.models.hybrid import Hybrid
from tests.engine.hybrid.conftest import Pair
from tests.engine.hybrid.toys import BENCHMARK_LIKE, TOYS, prompt, save_toy, worst


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", sorted(TOYS))
def test_long_prompts_in_random_pieces(pair: Callable[[str], Pair], name: str, seed: int) -> None:
    toy, tokens = pair(name), prompt(500, seed)
    with torch.no_grad():
        wanted = toy.theirs(tokens[None], use_cache=False).logits[0]
    places = sorted(random.Random(seed).sample(range(1, 500), 12))
    state, found = toy.ours.start(), []
    for start, stop in pairwise((0, *places, 500)):
        logits, state = toy.ours.run(tokens[start:stop], state)
        found.append(logits)
    assert worst(torch.cat(found), wanted) < 1e-4
    assert worst(torch.cat(found), toy.ours.run(tokens)[0]) < 1e-5


@pytest.mark.slow
def test_shape_of_a_real_model(tmp_path: Path) -> None:
    theirs = save_toy(BENCHMARK_LIKE, tmp_path)
    ours, tokens = Hybrid.load(tmp_path), prompt(700)
    with torch.no_grad():
        wanted = theirs(tokens[None], use_cache=False).logits[0]
        said = theirs.generate(
            tokens[None], attention_mask=torch.ones(1, 700), max_new_tokens=64, do_sample=False
        )[0, 700:]
    logits, state = ours.run(tokens)
    assert worst(logits, wanted) < 1e-4
    found: list[int] = []
    for _ in range(64):
        found.append(int(logits[-1].argmax()))
        logits, state = ours.run(torch.tensor(found[-1:]), state)
    assert found == said.tolist()


@pytest.mark.parametrize("name", ["mamba2", "granite_experts", "falcon", "nemotron_latent"])
def test_bfloat16_is_near_and_keeps_its_state_in_float32(
    pair: Callable[[str], Pair], name: str
) -> None:
    toy = pair(name)
    rounded = Hybrid.load(toy.folder, torch.bfloat16)
    logits, state = rounded.run(prompt(40))
    again, _ = rounded.run(prompt(40)[30:], rounded.run(prompt(40)[:30])[1])
    exact, _ = toy.ours.run(prompt(40))
    assert logits.dtype == torch.bfloat16
    kept = next(layer.mamba for layer in state.layers if layer.mamba is not None)
    assert (kept.conv.dtype, kept.ssm.dtype) == (torch.bfloat16, torch.float32)
    assert 0 < worst(logits, exact) < 0.1
    assert worst(again, logits[30:]) < 0.1
