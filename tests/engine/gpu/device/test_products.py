"""Products with matrices in every format, rows of matrices, and the largest logit."""

from __future__ import annotations

import pytest
import torch

from agentmem.engine.gpu import norms
from agentmem.engine.gpu.backend import TritonKernels
from agentmem.engine.kernels.weights import QuantisedActivation, Weight, WeightFormat
from agentmem.engine.quant.formats import dequantise, quantise, reorder
from tests.engine.gpu.device.support import DEVICE, close, random

FORMATS: tuple[WeightFormat, ...] = ("fp32", "bf16", "fp8", "int8", "int4")


def matrix(format: WeightFormat, outs: int, ins: int, group: int = 32) -> tuple[Weight, Weight]:
    """(on the device, as made)."""
    made = quantise(random(outs, ins, seed=5).cpu() / ins**0.5, format, group)
    scale = None if made.scale is None else made.scale.to(DEVICE)
    offset = None if made.offset is None else made.offset.to(DEVICE)
    return Weight(format, made.data.to(DEVICE), scale, made.group, offset=offset), made


@pytest.mark.parametrize("rows", [1, 5, 19])
@pytest.mark.parametrize("format", FORMATS)
def test_linear_against_float64(format: WeightFormat, rows: int, kernels: TritonKernels) -> None:
    weight, made = matrix(format, 70, 192)
    x = random(rows, 192, dtype=torch.float32 if format == "fp32" else torch.bfloat16)
    bias = random(70, seed=6).to(x.dtype)
    wanted = x.cpu().double() @ dequantise(made).double().T
    got = kernels.linear(x, weight)
    assert got.dtype == x.dtype
    close(got, wanted)
    close(
        kernels.linear(x, weight, bias),
        wanted + bias.cpu().double(),
        slack=4e-3 if rows > 16 else 1e-5,
    )


@pytest.mark.parametrize("ins", [64, 200])
@pytest.mark.parametrize("format", ["fp8", "int8"])
def test_any_width(format: WeightFormat, ins: int, kernels: TritonKernels) -> None:
    weight, made = matrix(format, 33, ins)
    x = random(3, 2 * ins, dtype=torch.float16)[:, :ins]
    close(kernels.linear(x, weight), x.cpu().double() @ dequantise(made).double().T)


def test_groups_of_64(kernels: TritonKernels) -> None:
    weight, made = matrix("int4", 33, 192, 64)
    x = random(3, 192)
    close(kernels.linear(x, weight), x.cpu().double() @ dequantise(made).double().T)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, None])
@pytest.mark.parametrize("rows", [3, 33])
def test_quantised_on_both_sides(
    rows: int, dtype: torch.dtype | None, kernels: TritonKernels
) -> None:
    weight, made = matrix("fp8", 70, 200)
    scale = torch.tensor([0.02], device=DEVICE)
    weight = Weight("fp8", weight.data, weight.scale, input_scale=scale)
    x = norms.quant(random(rows, 200, dtype=dtype or torch.bfloat16), scale)
    got = kernels.linear(QuantisedActivation(x.data, scale, dtype), weight)
    assert got.dtype == (dtype or torch.bfloat16)
    close(got, x.data.cpu().double() * 0.02 @ dequantise(made).double().T)


def test_an_activation_that_the_matrix_does_not_know(kernels: TritonKernels) -> None:
    scale = torch.ones(1, device=DEVICE)
    x = norms.quant(random(2, 64), scale)
    plain, _ = matrix("bf16", 8, 64)
    dynamic, _ = matrix("fp8", 8, 64)
    for weight in (plain, dynamic):
        with pytest.raises(TypeError, match="e4m3-static-tensor"):
            kernels.linear(x, weight)
    static = Weight("fp8", dynamic.data, dynamic.scale, input_scale=scale)
    with pytest.raises(TypeError, match="another"):
        kernels.linear(QuantisedActivation(x.data, scale, None, key="another"), static)


@pytest.mark.parametrize("format", FORMATS)
def test_rows_of_a_matrix(format: WeightFormat, kernels: TritonKernels) -> None:
    weight, made = matrix(format, 20, 64)
    tokens = torch.tensor([3, 0, 19, 3])
    got = kernels.embed(tokens.to(DEVICE), weight)
    assert torch.equal(got.cpu(), dequantise(reorder(made, tokens)))


@pytest.mark.slow
def test_rows_alone_are_rows_together() -> None:
    kernels = TritonKernels(invariant=True)
    x = random(37, 192, dtype=torch.bfloat16)
    formats: tuple[WeightFormat, ...] = ("bf16", "int8", "int4")
    for format in formats:
        weight, _ = matrix(format, 40, 192)
        together = kernels.linear(x, weight)
        for row in (0, 36):
            assert torch.equal(kernels.linear(x[row : row + 1], weight)[0], together[row])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [7, 4096, 9001])
def test_largest(size: int, dtype: torch.dtype, kernels: TritonKernels) -> None:
    logits = random(4, size, dtype=dtype)
    logits[1] = -torch.inf
    logits[2, size // 2] = logits[2, size - 1] = 90.0
    logits[3, :3] = torch.nan
    wanted = logits.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf).argmax(1)
    wanted[2] = size // 2
    wanted[1] = 0
    assert kernels.largest(logits).tolist() == wanted.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_gate(activation: str, dtype: torch.dtype, kernels: TritonKernels) -> None:
    both = random(3, 2 * 1100, dtype=dtype) * 3
    both[0, :4] = torch.tensor([-100.0, 100.0, 0.0, -0.0])
    gate, up = both.cpu().double().chunk(2, dim=1)
    if activation == "silu":
        opened = gate * gate.sigmoid()
    else:
        opened = torch.nn.functional.gelu(gate, approximate="tanh")
    got = kernels.gate(both, activation)  # type: ignore[arg-type]
    error = (got.cpu().double() - opened * up).abs()
    step = 2.0**-7 if dtype == torch.bfloat16 else 2e-6  # rounded twice
    assert bool((error <= (opened * up).abs() * step + 1e-6).all())
