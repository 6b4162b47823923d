"""Norms and static quantisation: the byte cases, float64, and each other."""

from __future__ import annotations

import math

import pytest
import torch

from agentmem.engine.gpu import norms
from agentmem.engine.gpu.backend import TritonKernels
from agentmem.engine.kernels.base import RoundingOrder
from agentmem.engine.quant.formats import to_e4m3
from tests.engine.gpu.device.support import (
    DEVICE,
    close,
    codes,
    norm64,
    put,
    random,
    steps_apart,
)
from tests.engine.quant.cases import CASTS, NORM_CASES, NormCase

ORDERS: tuple[RoundingOrder, ...] = ("round-first", "no-round")
EVERY_BF16 = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("case", NORM_CASES, ids=lambda case: case.name)
def test_bytes(case: NormCase, order: RoundingOrder, kernels: TritonKernels) -> None:
    x = put(case.x, torch.bfloat16)[None]
    before = x.clone()
    weight = put(case.weight or (1.0,) * len(case.x), torch.bfloat16)
    scale = torch.tensor([case.scale], device=DEVICE)
    delta = put(case.delta, torch.bfloat16)[None] if case.delta else None
    got = kernels.norm_quant(x, weight, case.eps, scale, order, delta)
    assert bytes(codes(got.data).flatten().tolist()).hex() == case.expected[order]
    assert got.scale is scale and got.orig_dtype == torch.bfloat16
    stream = before if case.stream is None else put(case.stream, torch.bfloat16)[None]
    assert torch.equal(x.nan_to_num(nan=-1.5), stream.nan_to_num(nan=-1.5))


def test_casts() -> None:
    got = norms.quant(
        put([value for value, _, _ in CASTS], torch.float32), torch.ones(1, device=DEVICE)
    )
    assert codes(got.data).tolist() == [code for _, code, _ in CASTS]
    for value, (_, _, meaning) in zip(got.data.float().tolist(), CASTS, strict=True):
        assert value == meaning or (math.isnan(value) and math.isnan(meaning))


@pytest.mark.parametrize("scale", [1.0, 0.0625, 3.0])
def test_every_bf16_value(scale: float) -> None:
    got = norms.quant(EVERY_BF16.to(DEVICE), torch.tensor([scale], device=DEVICE))
    factor = torch.tensor([scale]).reciprocal()
    assert torch.equal(codes(got.data), codes(to_e4m3(EVERY_BF16.float() * factor)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("width", [111, 576])
def test_norm_against_float64(
    width: int, added: bool, dtype: torch.dtype, kernels: TritonKernels
) -> None:
    x, delta = random(3, width, dtype=dtype), random(3, width, dtype=dtype, seed=1) * 3
    weight = random(width, seed=2) * 0.1 + 1
    if added:
        wanted = (x.double() + delta.double()).to(dtype)
        got = kernels.add_norm(x, delta, weight, 1e-6, dtype)
        assert torch.equal(x, wanted)
    else:
        got = kernels.norm(x, weight, 1e-6, dtype)
    close(got, norm64(x, weight, 1e-6), slack=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_quantised_norm_against_float64(
    order: RoundingOrder, added: bool, dtype: torch.dtype, kernels: TritonKernels
) -> None:
    x, delta = random(8, 576, dtype=dtype), random(8, 576, dtype=dtype, seed=1) * 3
    weight = (random(576, seed=2) * 0.1 + 1).to(dtype)
    total = x.double() + delta.double() if added else x.double()
    if order == "round-first":
        total = total.to(dtype)
    normed = norm64(total, weight, 1e-6)
    if order == "round-first":
        normed = normed.to(dtype).double()
    wanted = to_e4m3((normed / 0.05).float())
    scale = torch.tensor([0.05], device=DEVICE)
    got = kernels.norm_quant(x, weight, 1e-6, scale, order, delta if added else None)
    apart = steps_apart(got.data, wanted)
    assert int(apart.max()) <= 1
    assert float((apart > 0).float().mean()) <= 1e-3  # ties that float32 sums decide otherwise


@pytest.mark.parametrize("added", [False, True])
def test_fused_is_unfused_when_rounding_first(added: bool, kernels: TritonKernels) -> None:
    x, delta = random(4, 640, dtype=torch.bfloat16), random(4, 640, dtype=torch.bfloat16, seed=1)
    other = x.clone()
    weight = (random(640, seed=2) + 1).bfloat16()
    scale = torch.tensor([0.03], device=DEVICE)
    if added:
        plain = kernels.add_norm(x, delta, weight, 1e-5, torch.bfloat16)
    else:
        plain = kernels.norm(x, weight, 1e-5, torch.bfloat16)
    fused = kernels.norm_quant(other, weight, 1e-5, scale, "round-first", delta if added else None)
    assert torch.equal(codes(fused.data), codes(norms.quant(plain, scale).data))
    assert torch.equal(x, other)
    direct = kernels.norm_quant(other, weight, 1e-5, scale, "no-round")
    share = float((steps_apart(fused.data, direct.data) > 0).float().mean())
    assert added or 0 < share < 0.05


def test_any_layout(kernels: TritonKernels) -> None:
    flat = random(6, 48, dtype=torch.bfloat16)
    weight = (random(48, seed=2) + 1).bfloat16()
    scale = torch.tensor(0.05, device=DEVICE)
    wanted = codes(kernels.norm_quant(flat, weight, 1e-6, scale, "round-first").data)
    wide = random(6, 96, dtype=torch.bfloat16)
    wide[:, :48] = flat
    turned = flat.t().contiguous().t()
    for x in (flat.view(2, 3, 48), wide[:, :48], turned):
        got = kernels.norm_quant(x, weight, 1e-6, scale, "round-first")
        assert got.data.shape == x.shape
        assert torch.equal(codes(got.data).reshape(6, 48), wanted)
    delta = random(6, 48, dtype=torch.bfloat16, seed=3)
    total = (flat.float() + delta.float()).bfloat16()
    kernels.norm_quant(turned, weight, 1e-6, scale, "round-first", delta)
    assert torch.equal(turned, total)


def test_no_rows_and_foreign_weights(kernels: TritonKernels) -> None:
    scale = torch.ones(1, device=DEVICE)
    none = torch.empty(0, 8, dtype=torch.bfloat16, device=DEVICE)
    got = kernels.norm_quant(none, put((1.0,) * 8, torch.bfloat16), 1e-6, scale, "round-first")
    assert got.data.shape == (0, 8)
    with pytest.raises(TypeError, match=r"weight of torch\.float32"):
        kernels.norm_quant(none, put((1.0,) * 8, torch.float32), 1e-6, scale, "round-first")
