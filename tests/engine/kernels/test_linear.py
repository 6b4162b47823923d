"""Products against float64; every format, odd shapes, one to seventeen rows and more."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from agentmem.engine.kernels.native import NativeKernels
from agentmem.engine.kernels.torch_backend import TorchKernels
from agentmem.engine.kernels.weights import QuantisedActivation, Weight
from agentmem.engine.quant.formats import dequantise, quantise, to_e4m3

FORMATS = ["fp32", "bf16", "fp8", "int8", "int4"]
SHAPES = [(48, 64), (9, 576), (130, 96), (5, 32), (16, 896), (3, 2048)]
TOLERANCE = {"fp32": 1e-6, "bf16": 3e-6, "fp8": 3e-6, "int8": 4e-5, "int4": 4e-5}
"""Of the norm of a row, before its result is rounded to its type."""


def activation(m: int, columns: int, format: str) -> Tensor:
    x = torch.randn(m, columns) * torch.rand(m, 1) * 3
    return x.float() if format in ("fp32", "int8", "int4") else x.bfloat16()


def exact(x: Tensor, weight: Weight, bias: Tensor | None = None) -> Tensor:
    """In float64, of the very codes and scales."""
    scale = weight.scale
    if scale is None:
        matrix = weight.data.double()
    elif weight.format == "int4":
        matrix = dequantise(Weight("int4", weight.data, torch.ones_like(scale), weight.group))
        matrix = matrix.double() * scale.double().repeat_interleave(weight.group or 0, 1)
        if weight.offset is not None:
            matrix += weight.offset.double().repeat_interleave(weight.group or 0, 1)
    else:
        matrix = weight.data.float().double() * scale.double()[:, None]
    out = x.double() @ matrix.T
    return out if bias is None else out + bias.double()


def assert_close(found: Tensor, wanted: Tensor, x: Tensor, weight: Weight) -> None:
    size = x.double().norm(dim=1, keepdim=True) * dequantise(weight).double().norm(dim=1)
    limit = TOLERANCE[weight.format] * size + 1e-30
    if found.dtype == torch.bfloat16:
        limit = limit + wanted.abs() * 2**-8
    assert bool(((found.double() - wanted).abs() <= limit).all())


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_products(kernels: NativeKernels, format: str, rows: int, columns: int) -> None:
    weight = quantise(torch.randn(rows, columns), format)
    for m in (*range(1, 18), 70) if columns == 576 else (1, 2, 3, 4, 17):
        x = activation(m, columns, format)
        bias = torch.randn(rows).to(x.dtype) if m % 2 else None
        found = kernels.linear(x, weight, bias)
        assert found.dtype == x.dtype
        assert_close(found, exact(x, weight, bias), x, weight)


@pytest.mark.parametrize("columns", [1, 5, 33, 63, 65, 127, 129, 200])
@pytest.mark.parametrize("format", ["fp32", "bf16", "fp8", "int8"])
def test_any_width(kernels: NativeKernels, format: str, columns: int) -> None:
    weight = quantise(torch.randn(9, columns), format)
    x = activation(3, columns, format)
    assert_close(kernels.linear(x, weight), exact(x, weight), x, weight)


@pytest.mark.parametrize("group", [32, 64])
def test_groups_of_four_bits(kernels: NativeKernels, group: int) -> None:
    for groups in (1, 5, 16, 17, 35):
        weight = quantise(torch.randn(21, group * groups) + 0.3, "int4", group)
        x = activation(4, weight.columns, "int4")
        for given in (weight, replace(weight, offset=None)):
            assert_close(kernels.linear(x, given), exact(x, given), x, weight)
            found = kernels.embed(torch.arange(21), given)
            assert torch.equal(found, dequantise(given))


@pytest.mark.parametrize("format", FORMATS)
def test_a_row_is_the_same_in_any_batch(kernels: NativeKernels, format: str) -> None:
    weight = quantise(torch.randn(37, 576), format)
    x = activation(90, 576, format)
    alone = torch.cat([kernels.linear(row[None], weight) for row in x])
    for m in (2, 3, 4, 5, 6, 7, 9, 12, 17, 64, 65, 90):
        assert torch.equal(kernels.linear(x[:m], weight), alone[:m])
        assert torch.equal(kernels.linear(x[90 - m :], weight), alone[90 - m :])


@pytest.mark.parametrize("format", FORMATS)
def test_threads_do_not_matter(kernels: NativeKernels, format: str) -> None:
    weight = quantise(torch.randn(515, 256), format)
    x = activation(5, 256, format)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = kernels.linear(x, weight)
        torch.set_num_threads(2)
        assert torch.equal(kernels.linear(x, weight), one)
    finally:
        torch.set_num_threads(before)


def test_eight_bits_do_not_depend_on_the_processor(kernels: NativeKernels) -> None:
    weight = quantise(torch.randn(16, 640), "int8")
    x = activation(3, 640, "int8")
    peak = x.abs().amax(1, keepdim=True)
    q = torch.round(x * (torch.tensor(32639.0) / peak)).long()
    low = (q + 128) % 256 - 128
    sums = [(part @ weight.data.long().T).double() for part in ((q - low) // 256, low)]
    total = (sums[0] * 256 + sums[1]).float()
    assert weight.scale is not None
    wanted = total * weight.scale * (peak / torch.tensor(32639.0))
    assert torch.equal(kernels.linear(x, weight), wanted)


def test_sixteen_bits_lose_less_than_bf16(kernels: NativeKernels) -> None:
    weight = quantise(torch.randn(64, 2048), "int8")
    x = torch.randn(8, 2048)
    x[:, 7] *= 1000  # what a few hidden elements of real models look like
    wanted = exact(x, weight)
    ours = (kernels.linear(x, weight).double() - wanted).norm()
    rounded = (exact(x.bfloat16(), weight) - wanted).norm()
    assert ours < rounded


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_shows(kernels: NativeKernels, format: str, bad: float) -> None:
    weight = quantise(torch.randn(20, 160), format)
    x = activation(3, 160, format)
    clean = kernels.linear(x, weight)
    x[1, 5] = bad
    found = kernels.linear(x, weight)
    assert not bool(found[1].isfinite().any())
    assert torch.equal(found[[0, 2]], clean[[0, 2]])


def test_a_nan_weight_shows(kernels: NativeKernels) -> None:
    weight = quantise(torch.randn(4, 64), "fp8")
    weight.data.view(torch.uint8)[2, 9] = 0x7F
    found = kernels.linear(activation(1, 64, "fp8"), weight)
    assert found.isnan().tolist() == [[False, False, True, False]]


def test_every_code_of_eight_bits(kernels: NativeKernels) -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(256, 1).expand(256, 64).contiguous()
    weight = Weight("fp8", codes.view(torch.float8_e4m3fn), torch.ones(256))
    x = torch.zeros(1, 64, dtype=torch.bfloat16)
    for at in range(64):
        x.zero_()
        x[0, at] = 1
        found = kernels.linear(x, weight)[0]
        wanted = weight.data.float()[:, at].bfloat16()
        assert torch.equal(found.nan_to_num(777), wanted.nan_to_num(777))


def test_static_activations(kernels: NativeKernels) -> None:
    scale = torch.tensor([0.03])
    weight = quantise(torch.randn(40, 192), "fp8")
    weight = Weight("fp8", weight.data, weight.scale, input_scale=scale)
    plain = torch.randn(17, 192)
    for dtype in (torch.bfloat16, torch.float32):
        x = QuantisedActivation(to_e4m3(plain / scale), scale, dtype)
        found = kernels.linear(x, weight)
        wanted = exact(x.data.float(), weight) * scale.double()
        assert found.dtype == dtype
        assert_close(found, wanted, plain, weight)
        torch.testing.assert_close(found, TorchKernels().linear(x, weight), rtol=1e-2, atol=1e-3)


def test_no_rows_and_unknown_activations(kernels: NativeKernels) -> None:
    weight = quantise(torch.randn(8, 64), "int8")
    assert kernels.linear(torch.empty(0, 64), weight).shape == (0, 8)
    x = QuantisedActivation(to_e4m3(torch.randn(1, 64)), torch.ones(1), torch.float32)
    with pytest.raises(TypeError):
        kernels.linear(x, weight)


@pytest.mark.parametrize("format", ["bf16", "fp8", "int8", "int4"])
@pytest.mark.parametrize("prefill", ["unpack", "group64"])
def test_many_rows_outside_the_invariant_mode(
    kernels: NativeKernels, format: str, prefill: str
) -> None:
    fast = NativeKernels(prefill=prefill)
    for m, rows in ((17, 50), (40, 16), (131, 96)):
        weight = quantise(torch.randn(rows, 128), format)
        x = torch.randn(m, 128).bfloat16()
        bias = torch.randn(rows)
        found = fast.linear(x, weight, bias)
        wanted = exact(x, weight, bias)
        assert (found.double() - wanted).norm() / wanted.norm() < 1.2e-2


def test_groups_of_eight_bits(kernels: NativeKernels) -> None:
    fast = NativeKernels(prefill="group64")
    weight = quantise(torch.randn(35, 192), "int8")
    x = torch.randn(33, 192)
    peak = x.view(33, 3, 64).abs().amax(2, keepdim=True)
    q = torch.round(x.view(33, 3, 64) * (127.0 / peak)) * (peak / 127.0)
    wanted = exact(q.view(33, 192), weight)
    found = fast.linear(x, weight).double()
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-3)
    for m in (17, 18, 19, 20):  # whichever rows share a tile
        assert torch.equal(fast.linear(x[:m], weight).double(), found[:m])


def test_strides_are_taken_or_copied(kernels: NativeKernels) -> None:
    weight = quantise(torch.randn(24, 64), "int8")
    x = torch.randn(64, 6).T
    assert torch.equal(kernels.linear(x, weight), kernels.linear(x.contiguous(), weight))
    turned = Weight("bf16", torch.randn(64, 24).bfloat16().T)
    y = torch.randn(3, 64).bfloat16()
    torch.testing.assert_close(
        kernels.linear(y, turned), (y.float() @ turned.data.float().T).bfloat16()
    )


@pytest.mark.parametrize("format", FORMATS)
def test_rows_of_an_embedding(kernels: NativeKernels, format: str) -> None:
    weight = quantise(torch.randn(50, 160), format)
    tokens = torch.tensor([3, 0, 49, 3])
    found = kernels.embed(tokens, weight)
    assert torch.equal(found, dequantise(weight)[tokens])
    assert kernels.embed(tokens[:0], weight).shape == (0, 160)
