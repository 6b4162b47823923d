"""States put into a store's pages and taken out again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from agentmem.engine.models.hybrid import HybridState
from agentmem.engine.models.mamba2 import MambaState
from agentmem.engine.state.layout import StatePages
from tests.engine.hybrid.conftest import Pair
from tests.engine.hybrid.toys import prompt


def put(pages: StatePages, state: HybridState, block: int) -> None:
    """The Mamba states of a single sequence."""
    for at, layer in enumerate(state.layers):
        if layer.mamba is not None:
            conv, ssm = pages.layer_views(at)
            conv.data[block] = layer.mamba.conv[0]
            ssm.data[block] = layer.mamba.ssm[0]


def take(pages: StatePages, like: HybridState, block: int) -> HybridState:
    """A state whose Mamba part comes from a block."""
    layers = []
    for at, layer in enumerate(like.layers):
        if layer.mamba is not None:
            conv, ssm = (view.data[block : block + 1] for view in pages.layer_views(at))
            layer = replace(layer, mamba=MambaState(conv, ssm))
        layers.append(layer)
    return HybridState(like.lengths, tuple(layers))


@pytest.mark.parametrize("name", ["bamba", "falcon", "mamba2", "nemotron"])
def test_a_state_from_a_block_is_the_state(pair: Callable[[str], Pair], name: str) -> None:
    model = pair(name).ours
    pages = StatePages(model.state_layers(), blocks=3)
    first, second = model.run(prompt(19))[1], model.run(prompt(19, seed=4))[1]
    put(pages, first, 1)
    put(pages, second, 2)
    assert pages.state_bytes == sum(
        layer.mamba.size_bytes for layer in first.layers if layer.mamba is not None
    )
    for block, state in ((1, first), (2, second)):
        wanted, _ = model.run(prompt(7, seed=8), state)
        logits, _ = model.run(prompt(7, seed=8), take(pages, state, block))
        assert torch.equal(logits, wanted)
        # decoding reads it in place as well, and leaves it alone
        one, _ = model.run(prompt(1), take(pages, state, block))
        assert torch.equal(one, model.run(prompt(1), state)[0])
    assert torch.equal(
        model.run(prompt(7), take(pages, first, 1))[0], model.run(prompt(7), first)[0]
    )


def test_a_trail_has_the_shape_of_blocks_with_drafts(pair: Callable[[str], Pair]) -> None:
    model = pair("mamba2").ours
    _, state = model.run(prompt(12), guesses={0: 3})
    for states, layer in zip(model.state_layers(guesses=3), state.layers, strict=True):
        conv, ssm = states.kinds
        assert conv.shape == layer.trails[0].conv.shape
        assert (4, *ssm.shape) == layer.trails[0].ssm.shape


@pytest.mark.parametrize(
    ("name", "states", "keys"),
    [
        ("mamba2", (0, 1, 2), ()),
        ("bamba", (0, 2), (1,)),
        ("falcon", (0, 1), (0, 1)),
        ("nemotron", (0, 3), (2,)),
    ],
)
def test_which_layers_keep_what(
    pair: Callable[[str], Pair], name: str, states: tuple[int, ...], keys: tuple[int, ...]
) -> None:
    model = pair(name).ours
    assert tuple(each.layer for each in model.state_layers()) == states
    assert tuple(layer for group in model.groups() for layer in group.layers) == keys
    for group in model.groups():
        assert (group.kv_heads, group.head_dim, group.window) == (2, 16, None)
