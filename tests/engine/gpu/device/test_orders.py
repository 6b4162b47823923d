"""No kernel's result depends on the order in which its programs run."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from agentmem.engine.gpu import norms
from agentmem.engine.gpu.backend import TritonKernels
from agentmem.engine.kernels.weights import WeightFormat
from tests.engine.gpu.device.order import Order, forward, program_order, reverse, shuffled
from tests.engine.gpu.device.support import Shape, batch_of, pages_of, put, random
from tests.engine.gpu.device.test_pages import rotations
from tests.engine.gpu.device.test_products import matrix

pytestmark = pytest.mark.skipif(
    os.environ.get("AGENTMEM_KERNELS") != "interpreter", reason="a device has no order to choose"
)
FEW: dict[str, Order] = {"reverse": reverse, "shuffle 0": shuffled(0)}
MANY: dict[str, Order] = {f"shuffle {seed}": shuffled(seed) for seed in range(1, 6)}
Work = Callable[[], tuple[Tensor, ...]]


@triton.jit
def racy_add_norm(x_ptr, delta_ptr, out_ptr, width, BLOCK: tl.constexpr, PIECE: tl.constexpr):
    """Two programs share a row: each adds its piece in place, both sum over the whole row."""
    row, piece = tl.program_id(0), tl.program_id(1)
    at = tl.arange(0, BLOCK)
    whole = tl.load(x_ptr + row * width + at) + tl.load(delta_ptr + row * width + at)
    rate = 1.0 / tl.sqrt(tl.sum(whole * whole, axis=0) / width)
    own = piece * PIECE + tl.arange(0, PIECE)
    mine = tl.load(x_ptr + row * width + own) + tl.load(delta_ptr + row * width + own)
    tl.store(x_ptr + row * width + own, mine)
    tl.store(out_ptr + row * width + own, mine * rate)


@triton.jit
def racy_last(flag_ptr, out_ptr):
    """The last program clears what the others read: in the usual order nobody notices."""
    index, last = tl.program_id(0), tl.num_programs(0) - 1
    tl.store(out_ptr + index, tl.load(flag_ptr))
    if index == last:
        tl.store(flag_ptr, 0.0)


def racy_columns() -> tuple[Tensor, ...]:
    x, out = random(3, 32), torch.zeros(3, 32)
    racy_add_norm[(3, 2)](x, random(3, 32, seed=1), out, 32, BLOCK=32, PIECE=16)
    return x, out


def racy_flag() -> tuple[Tensor, ...]:
    flag, out = torch.ones(1), torch.zeros(5)
    racy_last[(5,)](flag, out)
    return flag, out


def norm(added: bool, quantised: bool) -> Work:
    def work() -> tuple[Tensor, ...]:
        kernels = TritonKernels()
        x = random(7, 48, dtype=torch.bfloat16)
        delta = random(7, 48, dtype=torch.bfloat16, seed=1) if added else None
        if quantised:
            weight = put((1.0,) * 48, torch.bfloat16)
            scale = torch.tensor([0.05])
            out = kernels.norm_quant(x, weight, 1e-6, scale, "round-first", delta).data
            return x, out.view(torch.uint8)
        return x, norms.norm(x, delta, torch.ones(48), 1e-6, torch.bfloat16)

    return work


def quant() -> tuple[Tensor, ...]:
    return (norms.quant(random(5, 1000), torch.tensor([0.05])).data.view(torch.uint8),)


def linear(format: WeightFormat) -> Work:
    def work() -> tuple[Tensor, ...]:
        weight, _ = matrix(format, 100, 64)
        return (TritonKernels(invariant=True).linear(random(20, 64), weight),)

    return work


def gate() -> tuple[Tensor, ...]:
    return (TritonKernels().gate(random(3, 2 * 2050), "silu"),)


def largest() -> tuple[Tensor, ...]:
    logits = random(3, 9000).round(decimals=1)
    return (TritonKernels().largest(logits),)


def rope(kind: str) -> Work:
    def work() -> tuple[Tensor, ...]:
        shape = Shape()
        batch = batch_of(((2, 6),), shape)
        pages = pages_of(batch, shape, kind)  # type: ignore[arg-type]
        q = TritonKernels().rope_store(
            random(batch.rows, 8, 16, dtype=torch.bfloat16),
            rotations(batch.positions, 16),
            batch.slots[0],
            pages,
            0,
            2,
            random(6, 16),
            1e-6,
        )
        scales = () if pages.scales is None else (pages.scales.nan_to_num(),)
        return q, pages.data.nan_to_num(), *scales

    return work


def attention(invariant: bool, window: int | None) -> Work:
    def work() -> tuple[Tensor, ...]:
        shape = Shape(window=window)
        batch = batch_of(((1, 9), (3, 5), (1, 70)), shape)
        pages = pages_of(batch, shape, "bf16")
        q = random(batch.rows, 4, 16, dtype=torch.bfloat16)
        return (TritonKernels(invariant=invariant).attend(q, pages, 0, batch, 0, 0.3, window),)

    return work


WORK: dict[str, Work] = {
    "norm": norm(False, False),
    "add + norm": norm(True, False),
    "norm + quant": norm(False, True),
    "add + norm + quant": norm(True, True),
    "quant": quant,
    **{f"linear {f}": linear(f) for f in ("bf16", "fp8", "int8", "int4")},  # type: ignore[arg-type]
    "gate": gate,
    "largest": largest,
    "rope_store bf16": rope("bf16"),
    "rope_store int8": rope("int8"),
    "attention": attention(False, None),
    "attention, window": attention(False, 7),
    "attention, each row": attention(True, None),
}

SLOWER = {
    "norm",
    "norm + quant",
    "linear int4",
    "linear fp8",
    "rope_store bf16",
    "attention, each row",
    "attention, window",
}
"""Whose fast siblings run the same kernel."""


def differs(work: Work, orders: dict[str, Order]) -> list[str]:
    """Orders in which the result is another than in the usual one."""
    with program_order(forward) as ran:
        usual = work()
    assert len(ran) > 2, "nothing to reorder"
    found = []
    for name, order in orders.items():
        with program_order(order) as other:
            result = work()
        assert sorted(other) == sorted(ran) and other != ran
        if not all(torch.equal(a, b) for a, b in zip(usual, result, strict=True)):
            found.append(name)
    return found


@pytest.mark.parametrize("work", [racy_columns, racy_flag])
def test_a_race_is_found(work: Work) -> None:
    assert differs(work, FEW)


@pytest.mark.parametrize("name", sorted(WORK.keys() - SLOWER))
def test_order_does_not_matter(name: str) -> None:
    assert differs(WORK[name], FEW) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", WORK)
def test_order_does_not_matter_five_times(name: str) -> None:
    assert differs(WORK[name], MANY) == []
