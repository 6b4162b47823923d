"""Fused FP8 norms: the cases byte for byte, the orders against each other, who may consume."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from agentmem.engine.kernels.weights import QuantisedActivation, Weight
from agentmem.engine.quant.formats import dequantise, quantise
from agentmem.engine.quant.fp8 import norm_quant, product, rms, static_quantise
from tests.engine.quant.cases import NORM_CASES, NormCase

ORDERS = ("round-first", "no-round")
EPS = 1e-6


def scale_of(value: float) -> Tensor:
    return torch.tensor([value], dtype=torch.float32)


def codes(x: QuantisedActivation) -> Tensor:
    return x.data.view(torch.uint8)


def row(values: tuple[float, ...]) -> Tensor:
    return torch.tensor([values], dtype=torch.bfloat16)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("case", NORM_CASES, ids=lambda case: case.name)
def test_a_case_gives_its_bytes(case: NormCase, order: str) -> None:
    x, scale = row(case.x), scale_of(case.scale)
    weight = row(case.weight or (1.0,) * len(case.x))[0]
    delta = None if case.delta is None else row(case.delta)
    out = norm_quant(x, weight, case.eps, scale, order, delta)
    assert bytes(codes(out)[0].tolist()).hex() == case.expected[order]
    after = case.x if case.stream is None else case.stream
    assert torch.allclose(x, row(after), rtol=0, atol=0, equal_nan=True)
    if case.delta is not None:
        assert torch.allclose(delta, row(case.delta), rtol=0, atol=0, equal_nan=True)


def test_counting_stands_for_what_it_should() -> None:
    out = norm_quant(row((1, 2, 3, 4)), row((1, 1, 1, 1))[0], EPS, scale_of(0.05))
    meant = torch.tensor([[0.375, 0.75, 1.1, 1.5]])
    torch.testing.assert_close(out.data.float() * 0.05, meant, rtol=1e-6, atol=0)


def test_the_result_is_a_named_type_that_holds_the_given_scale() -> None:
    x, scale = torch.randn(3, 8, dtype=torch.float16), scale_of(0.05)
    weight = torch.ones(8, dtype=torch.float16)
    out = norm_quant(x, weight, EPS, scale)
    assert out.scale is scale and out.data.shape == x.shape
    assert out.data.dtype == torch.float8_e4m3fn and out.orig_dtype == torch.float16
    assert (out.key, out.version) == ("e4m3-static-tensor", 1)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("with_delta", [False, True])
def test_shape_and_strides_make_no_difference(order: str, with_delta: bool) -> None:
    flat = torch.randn(6, 40, dtype=torch.bfloat16)
    delta = torch.randn(6, 40, dtype=torch.bfloat16) if with_delta else None
    weight = 1 + 0.1 * torch.randn(40, dtype=torch.bfloat16)
    expected = codes(norm_quant(flat.clone(), weight, EPS, scale_of(0.02), order, delta))
    wide = torch.zeros(6, 96, dtype=torch.bfloat16)
    wide[:, 16:56] = flat
    strided = norm_quant(wide[:, 16:56], weight, EPS, scale_of(0.02), order, delta)
    assert torch.equal(codes(strided), expected)
    deep = None if delta is None else delta.view(2, 3, 40)
    cube = norm_quant(flat.clone().view(2, 3, 40), weight, EPS, scale_of(0.02), order, deep)
    assert cube.data.shape == (2, 3, 40)
    assert torch.equal(codes(cube).view(6, 40), expected)
    for i in range(6):
        alone = None if delta is None else delta[i : i + 1]
        one = norm_quant(flat[i : i + 1].clone(), weight, EPS, scale_of(0.02), order, alone)
        assert torch.equal(codes(one), expected[i : i + 1])


def test_no_rows_give_no_codes() -> None:
    empty = torch.empty(0, 16, dtype=torch.bfloat16)
    out = norm_quant(empty, torch.ones(16, dtype=torch.bfloat16), EPS, scale_of(1.0))
    assert out.data.shape == (0, 16)


def test_the_stream_is_written_in_place_and_x_alone_is_left() -> None:
    x = torch.randn(4, 32, dtype=torch.bfloat16)
    delta = torch.randn(4, 32, dtype=torch.bfloat16)
    weight = torch.ones(32, dtype=torch.bfloat16)
    before, place = x.clone(), x.data_ptr()
    norm_quant(x, weight, EPS, scale_of(0.05))
    assert torch.equal(x, before)
    norm_quant(x, weight, EPS, scale_of(0.05), delta=delta)
    assert x.data_ptr() == place
    assert torch.equal(x, (before.float() + delta.float()).to(torch.bfloat16))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("width", [111, 512, 1024])
@pytest.mark.parametrize("with_delta", [False, True])
def test_round_first_is_the_unfused_path_byte_for_byte(
    dtype: torch.dtype, width: int, with_delta: bool
) -> None:
    torch.manual_seed(width)
    x = torch.randn(64, width).to(dtype)
    delta = torch.randn(64, width).to(dtype) if with_delta else None
    weight = (1 + 0.1 * torch.randn(width)).to(dtype)
    unfused = x.clone()
    if delta is not None:
        unfused += delta
    for value in (0.01, 0.05, 1.0):
        fused = norm_quant(x.clone(), weight, EPS, scale_of(value), delta=delta)
        plain = static_quantise(rms(unfused, weight, EPS).to(dtype), scale_of(value))
        assert torch.equal(codes(fused), codes(plain))


@pytest.mark.parametrize(("dtype", "share"), [(torch.bfloat16, 0.05), (torch.float16, 0.01)])
@pytest.mark.parametrize("with_delta", [False, True])
def test_the_orders_differ_by_one_step_in_few_places(
    dtype: torch.dtype, share: float, with_delta: bool
) -> None:
    torch.manual_seed(5)
    x = torch.randn(512, 512).to(dtype)
    delta = torch.randn(512, 512).to(dtype) if with_delta else None
    weight = (1 + 0.1 * torch.randn(512)).to(dtype)
    first, none = (
        codes(norm_quant(x.clone(), weight, EPS, scale_of(0.02), order, delta)).int()
        for order in ORDERS
    )
    assert bool(((first - none).abs() <= 1).all())
    differing = float((first != none).float().mean())
    assert 0 < differing <= share


def test_codes_stand_for_the_norm_within_the_format() -> None:
    torch.manual_seed(6)
    x, weight = torch.randn(512, 512), 1 + 0.1 * torch.randn(512)
    exact = F.rms_norm(x.double(), (512,), weight.double(), EPS)
    out = norm_quant(x.bfloat16(), weight.bfloat16(), EPS, scale_of(0.05))
    back = out.data.double() * 0.05
    assert float(F.cosine_similarity(back, exact).min()) > 0.999
    assert float(((back - exact).abs() / exact.abs().clamp_min(1e-3)).mean()) < 0.03


def test_a_weight_of_another_dtype_is_refused() -> None:
    x = torch.randn(2, 8, dtype=torch.bfloat16)
    with pytest.raises(TypeError, match="float32"):
        norm_quant(x, torch.ones(8), EPS, scale_of(1.0))


def fp8_matrix(scale: Tensor | None) -> Weight:
    torch.manual_seed(7)
    return replace(quantise(torch.randn(256, 512) / 512**0.5, "fp8"), input_scale=scale)


@pytest.mark.parametrize(
    ("hint", "out"),
    [(torch.float16, torch.float16), (torch.bfloat16, torch.bfloat16), (None, torch.bfloat16)],
)
def test_a_product_comes_out_in_the_activations_own_dtype(
    hint: torch.dtype | None, out: torch.dtype
) -> None:
    weight = fp8_matrix(scale_of(0.05))
    x = torch.randn(33, 512, dtype=hint or torch.bfloat16)
    quantised = replace(static_quantise(x, scale_of(0.05)), orig_dtype=hint)
    bias = torch.randn(256)
    got = product(quantised, weight, bias)
    assert got.dtype == out and got.shape == (33, 256)
    back = quantised.data.double() * 0.05
    exact = F.linear(back, dequantise(weight).double(), bias.double())
    torch.testing.assert_close(got.double(), exact, rtol=2e-2, atol=2e-2)
    plain = F.linear(x.double(), dequantise(weight).double(), bias.double())
    assert float((got.double() - plain).square().mean().sqrt()) < 0.05


@pytest.mark.parametrize(
    "weight",
    [
        fp8_matrix(None),
        quantise(torch.randn(256, 512), "bf16"),
        replace(quantise(torch.randn(256, 512), "int8"), input_scale=scale_of(0.05)),
    ],
    ids=["fp8 without a scale", "bf16", "int8"],
)
def test_a_linear_that_does_not_know_the_activation_refuses_it(weight: Weight) -> None:
    x = static_quantise(torch.randn(2, 512, dtype=torch.bfloat16), scale_of(0.05))
    with pytest.raises(TypeError, match="input scale"):
        product(x, weight)


@pytest.mark.parametrize(
    "changed", [{"key": "e4m3-static-row"}, {"version": 2}, {"scale": torch.ones(2)}], ids=str
)
def test_another_key_version_or_shape_of_scale_is_refused(changed: dict[str, object]) -> None:
    x = static_quantise(torch.randn(2, 512, dtype=torch.bfloat16), scale_of(0.05))
    with pytest.raises(TypeError):
        product(replace(x, **changed), fp8_matrix(scale_of(0.05)))  # type: ignore[arg-type]


def test_a_broken_row_makes_its_product_nan_and_no_other() -> None:
    x = torch.randn(3, 512, dtype=torch.bfloat16)
    x[1, 7] = torch.nan
    out = norm_quant(x, torch.ones(512, dtype=torch.bfloat16), EPS, scale_of(0.05))
    got = product(out, fp8_matrix(scale_of(0.05)))
    assert got[1].isnan().all() and bool(got[[0, 2]].isfinite().all())
