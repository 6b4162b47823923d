"""Rotation into pages and attention over them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest
import torch

from agentmem.engine.config import Rope
from agentmem.engine.gpu.attention import split_for
from agentmem.engine.gpu.backend import TritonKernels
from agentmem.engine.kernels.torch_backend import TorchKernels
from agentmem.engine.kv.layout import KVKind, KVPages
from agentmem.engine.rope import frequencies
from tests.engine.gpu.device.support import (
    DEVICE,
    ROUNDING,
    Shape,
    attention64,
    batch_of,
    close,
    pages_of,
    random,
)

KINDS: tuple[KVKind, ...] = ("fp32", "bf16", "int8")
MIXED = ((1, 9), (5, 5), (1, 1), (3, 30), (2, 14), (1, 21))
SINGLES = ((1, 9), (1, 1), (1, 30), (1, 70))


def some(every: Iterable[tuple[Any, ...]], fast: list[tuple[Any, ...]]) -> list[Any]:
    """All combinations, those that are not named marked slow."""
    return [c if c in fast else pytest.param(*c, marks=pytest.mark.slow) for c in every]


def rotations(positions: torch.Tensor, dim: int) -> torch.Tensor:
    angles = torch.outer(positions.cpu().double(), frequencies(Rope(10_000.0), dim))
    return torch.stack((angles.cos(), angles.sin()), dim=2).float().to(DEVICE)


def on_cpu(pages: KVPages) -> KVPages:
    scales = None if pages.scales is None else pages.scales.cpu().clone()
    return KVPages(pages.data.cpu().clone(), scales, pages.kind)


@pytest.mark.parametrize(
    ("kind", "dim", "normed"),
    some(
        itertools.product(KINDS, (16, 80), (False, True)),
        [("fp32", 16, False), ("bf16", 80, True), ("int8", 16, True)],
    ),
)
def test_rope_store(kind: KVKind, dim: int, normed: bool, kernels: TritonKernels) -> None:
    shape = Shape(dim=dim)
    dtype = torch.float32 if kind == "fp32" else torch.bfloat16
    batch = batch_of(MIXED[:2], shape)
    pages = pages_of(batch, shape, kind)
    theirs = on_cpu(pages)
    qkv = random(batch.rows, 8, dim, dtype=dtype, seed=3)
    qkv[0, 5] = 0.0
    turns, slots = rotations(batch.positions, dim), batch.slots[0]
    norm = random(6, dim, seed=4) * 0.1 + 1 if normed else None
    q = kernels.rope_store(qkv, turns, slots, pages, 1, 2, norm, 1e-6)
    norm = None if norm is None else norm.cpu()
    wanted = TorchKernels().rope_store(
        qkv.cpu(), turns.cpu(), slots.cpu(), theirs, 1, 2, norm, 1e-6
    )
    step = 2.1 * ROUNDING[dtype]  # a fused product may round to the neighbour
    torch.testing.assert_close(q.cpu(), wanted, rtol=step, atol=2e-6)
    used = slice(1, None)
    if kind == "int8":
        assert pages.scales is not None and theirs.scales is not None
        here, there = pages.scales[:, :, used].cpu(), theirs.scales[:, :, used]
        torch.testing.assert_close(here, there, rtol=2.0**-8, atol=0)
        apart = (pages.data.cpu().int() - theirs.data.int())[:, :, used].abs()
        assert int(apart.max()) <= 1 and float((apart > 0).float().mean()) < 0.01
    else:
        here, there = pages.data[:, :, used].cpu(), theirs.data[:, :, used]
        torch.testing.assert_close(here, there, rtol=step, atol=2e-6)


def test_broken_rows_stay_broken_in_int8(kernels: TritonKernels) -> None:
    shape = Shape()
    batch = batch_of(((3, 3),), shape)
    pages = pages_of(batch, shape, "int8")
    qkv = random(3, 8, 16, dtype=torch.bfloat16)
    qkv[0, 6, 3], qkv[1, 7, 15] = torch.nan, torch.inf
    turns, slots = rotations(batch.positions, 16), batch.slots[0]
    kernels.rope_store(qkv, turns, slots, pages, 0, 2, None, 1e-6)
    assert pages.scales is not None
    block, offset = slots // 4, slots % 4
    assert pages.scales[0, 1][block, :, offset].isnan().cpu().tolist() == [
        [True, False],
        [False, True],
        [False, False],
    ]
    assert bool((pages.data[0, 1][block[0], 0, offset[0]] == 1).all())


@pytest.mark.parametrize(
    ("runs", "kind", "window", "invariant"),
    some(
        itertools.product(("mixed", "singles"), KINDS, (None, 7), (False, True)),
        [
            ("mixed", "fp32", None, False),
            ("mixed", "int8", 7, False),
            ("singles", "bf16", None, False),
        ],
    ),
)
def test_attention(runs: str, kind: KVKind, window: int | None, invariant: bool) -> None:
    shape = Shape(window=window)
    batch = batch_of(MIXED if runs == "mixed" else SINGLES, shape)
    pages = pages_of(batch, shape, kind)
    dtype = torch.float32 if kind == "fp32" else torch.bfloat16
    q = random(batch.rows, 4, 16, dtype=dtype, seed=2)
    kernels = TritonKernels(invariant=invariant)
    got = kernels.attend(q, pages, 1, batch, 0, 0.25, window)
    # weights are rounded to the type of the values before they multiply them
    slack = 2e-6 if kind == "fp32" else 2.0**-8
    close(got, attention64(q, pages, 1, batch, 0.25, window), slack)


@pytest.mark.parametrize(
    "shape",
    [
        Shape(9, 3, 64, 16),
        pytest.param(Shape(4, 1, 32, 8, 12), marks=pytest.mark.slow),
        Shape(3, 3, 80, 4),
        pytest.param(Shape(14, 2, 16, 4), marks=pytest.mark.slow),
    ],
    ids=["9 on 3", "4 on 1, window", "dim 80", "7 each"],
)
def test_attention_of_models(shape: Shape, kernels: TritonKernels) -> None:
    batch = batch_of(((1, 40), (6, 22), (1, 130)), shape)
    pages = pages_of(batch, shape, "bf16")
    q = random(batch.rows, shape.heads, shape.dim, dtype=torch.bfloat16, seed=2)
    got = kernels.attend(q, pages, 0, batch, 0, shape.dim**-0.5, shape.window)
    wanted = attention64(q, pages, 0, batch, shape.dim**-0.5, shape.window)
    close(got, wanted, 2.0**-8)


def test_large_scores_do_not_overflow(kernels: TritonKernels) -> None:
    shape = Shape()
    batch = batch_of(((1, 20), (4, 12)), shape)
    pages = pages_of(batch, shape, "fp32")
    q = random(batch.rows, 4, 16, seed=2) * 200
    got = kernels.attend(q, pages, 0, batch, 0, 1.0, None)
    close(got, attention64(q, pages, 0, batch, 1.0, None), slack=1e-3)


@pytest.mark.slow
def test_a_row_alone_is_the_row_in_a_batch() -> None:
    kernels = TritonKernels(invariant=True)
    shape = Shape()
    batch = batch_of(((3, 260), (1, 9), (2, 2)), shape)
    pages = pages_of(batch, shape, "bf16")
    q = random(batch.rows, 4, 16, dtype=torch.bfloat16, seed=2)
    together = kernels.attend(q, pages, 0, batch, 0, 0.25, None)
    for row, sequence in ((0, 0), (3, 1), (5, 2)):
        alone = batch_of(((1, int(batch.positions[row]) + 1),), shape)
        alone.tables[0].zero_()
        table = batch.tables[0][sequence][: alone.tables[0].shape[1]]
        alone.tables[0][0, : len(table)] = table
        one = kernels.attend(q[row : row + 1], pages, 0, alone, 0, 0.25, None)
        assert torch.equal(one[0], together[row])


def test_splits_are_large_where_programs_are_many() -> None:
    assert split_for(1, 2048) == 64
    assert split_for(64, 8192) == 1024
    assert split_for(8, 8192) == 256
