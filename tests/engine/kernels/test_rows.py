"""Norms, fused quantisation, gates, rotations with their store, argmax: against the torch way."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from agentmem.engine.config import Activation
from agentmem.engine.kernels.base import RoundingOrder
from agentmem.engine.kernels.native import NativeKernels
from agentmem.engine.kernels.torch_backend import TorchKernels
from agentmem.engine.kv.layout import GroupSpec, KVKind, KVPages
from agentmem.engine.quant.formats import to_e4m3
from agentmem.engine.quant.fp8 import static_quantise
from tests.engine.quant.cases import NORM_CASES, NormCase

WIDTHS = [1, 15, 16, 33, 111, 576, 640, 2048]
BF16, FP32 = torch.bfloat16, torch.float32


def exact_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()


def codes(x: Tensor) -> str:
    return x.view(torch.uint8).flatten().numpy().tobytes().hex(" ")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_norm(kernels: NativeKernels, width: int, dtype: torch.dtype) -> None:
    weight = torch.rand(width) + 0.5
    for m in (1, 2, 5, 17):
        x = (torch.randn(m, width) * 3).to(dtype)
        found = kernels.norm(x, weight, 1e-6, FP32)
        torch.testing.assert_close(
            found.double(), exact_norm(x, weight, 1e-6), rtol=2e-6, atol=1e-7
        )
        assert torch.equal(kernels.norm(x, weight, 1e-6, BF16), found.bfloat16())
        alone = torch.cat([kernels.norm(row[None], weight, 1e-6, FP32) for row in x])
        assert torch.equal(alone, found)


@pytest.mark.parametrize("dtype", [BF16, FP32])
@pytest.mark.parametrize("other", [BF16, FP32])
def test_add_norm(kernels: NativeKernels, dtype: torch.dtype, other: torch.dtype) -> None:
    x, delta = torch.randn(3, 111).to(dtype), torch.randn(3, 111).to(other)
    weight = torch.rand(111)
    wanted = (x.float() + delta.float()).to(dtype)
    found = kernels.add_norm(x, delta, weight, 1e-5, BF16)
    assert torch.equal(x, wanted)
    assert torch.equal(found, kernels.norm(wanted, weight, 1e-5, BF16))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_fused_equals_unfused(kernels: NativeKernels, width: int, dtype: torch.dtype) -> None:
    weight, scale = (torch.rand(width) + 0.5).to(dtype), torch.tensor([0.021])
    x, delta = torch.randn(9, width).to(dtype), torch.randn(9, width).to(dtype)
    y = x.clone()
    plain = static_quantise(kernels.norm(x, weight, 1e-6, dtype), scale)
    assert codes(kernels.norm_quant(x, weight, 1e-6, scale, "round-first").data) == codes(
        plain.data
    )
    plain = static_quantise(kernels.add_norm(y, delta, weight, 1e-6, dtype), scale)
    found = kernels.norm_quant(x, weight, 1e-6, scale, "round-first", delta)
    assert codes(found.data) == codes(plain.data)
    assert torch.equal(x, y)
    assert found.scale is scale
    assert found.orig_dtype == dtype


@pytest.mark.parametrize("order", ["round-first", "no-round"])
@pytest.mark.parametrize("fused", [False, True])
def test_fused_against_torch(kernels: NativeKernels, order: RoundingOrder, fused: bool) -> None:
    for scale in (0.01, 0.05, 1.0):
        x, weight = torch.randn(64, 576).bfloat16(), (1 + 0.1 * torch.randn(576)).bfloat16()
        delta = torch.randn(64, 576).bfloat16() if fused else None
        mine, theirs, s = x.clone(), x.clone(), torch.tensor([scale])
        a = kernels.norm_quant(mine, weight, 1e-6, s, order, delta).data
        b = TorchKernels().norm_quant(theirs, weight, 1e-6, s, order, delta).data
        assert torch.equal(mine, theirs)
        step = (a.view(torch.int8).int() - b.view(torch.int8).int()).abs()
        assert int(step.max()) <= 1  # sums of squares are added up in another order
        assert float((step > 0).float().mean()) < 1e-3


@pytest.mark.parametrize("order", ["round-first", "no-round"])
@pytest.mark.parametrize("case", NORM_CASES, ids=lambda case: case.name)
def test_a_case_gives_its_bytes(
    kernels: NativeKernels, case: NormCase, order: RoundingOrder
) -> None:
    def row(values: tuple[float, ...]) -> Tensor:
        return torch.tensor([values], dtype=BF16)

    x, scale = row(case.x), torch.tensor([case.scale])
    weight = row(case.weight or (1.0,) * len(case.x))[0]
    delta = None if case.delta is None else row(case.delta)
    found = kernels.norm_quant(x, weight, case.eps, scale, order, delta)
    assert codes(found.data).replace(" ", "") == case.expected[order]
    after = row(case.x if case.stream is None else case.stream)
    assert torch.equal(x.nan_to_num(7), after.nan_to_num(7))


def test_no_rows_and_another_weight_type(kernels: NativeKernels) -> None:
    weight, scale = torch.ones(8, dtype=BF16), torch.tensor([0.05])
    empty = torch.empty(0, 8, dtype=BF16)
    found = kernels.norm_quant(empty, weight, 1e-6, scale, "round-first")
    assert found.data.shape == (0, 8)
    with pytest.raises(TypeError):
        kernels.norm_quant(torch.ones(1, 8), weight, 1e-6, scale, "round-first")


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_gate(kernels: NativeKernels, activation: Activation, dtype: torch.dtype) -> None:
    for n, width in ((1, 1), (2, 16), (3, 100), (5, 1536)):
        x = (torch.randn(n, 2 * width) * 5).to(dtype)
        gate, up = x.double().chunk(2, 1)
        way = F.silu(gate) if activation == "silu" else F.gelu(gate, approximate="tanh")
        found = kernels.gate(x, activation)
        assert found.dtype == dtype
        rtol = 2e-6 if dtype == FP32 else 2**-8
        torch.testing.assert_close(found.double(), way * up, rtol=rtol, atol=2e-6)


def test_gate_far_out(kernels: NativeKernels) -> None:
    gates = torch.tensor([-1e30, -200.0, -88, 0, 88, 200, 1e30, torch.nan, torch.inf])
    x = torch.cat((gates, torch.ones(9)))[None]
    for activation in ("silu", "gelu_tanh"):
        found = kernels.gate(x, activation)[0]
        wanted = TorchKernels().gate(x, activation)[0]
        torch.testing.assert_close(found, wanted, equal_nan=True, rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("kind", ["bf16", "fp32", "int8"])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("dim", [16, 64, 80, 256, 6])
def test_rope_and_store(kernels: NativeKernels, kind: KVKind, norm: bool, dim: int) -> None:
    heads, kv_heads, n = 4, 2, 7
    dtype = FP32 if kind == "fp32" else BF16
    spec = GroupSpec((0, 1, 2), kv_heads, dim)
    pages = [KVPages.empty(spec, 5, 16, kind) for _ in range(2)]
    for p in pages:
        p.data.zero_()
        if p.scales is not None:
            p.scales.zero_()
    qkv = torch.randn(n, heads + 2 * kv_heads, dim).to(dtype)
    qkv[2, heads:] = 0
    angles = torch.rand(n, dim // 2) * 100
    rotations = torch.stack((angles.cos(), angles.sin()), -1)
    slots = torch.tensor([17, 18, 31, 32, 79, 16, 50])
    weight = torch.rand(heads + kv_heads, dim) if norm else None
    args = (rotations, slots)
    found = kernels.rope_store(qkv, *args, pages[0], 1, kv_heads, weight, 1e-6)
    wanted = TorchKernels().rope_store(qkv, *args, pages[1], 1, kv_heads, weight, 1e-6)
    close = {"rtol": 2**-7, "atol": 1e-6} if dtype == BF16 else {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(found, wanted, **close)
    a, b = (p.data.float() for p in pages)
    if kind == "int8":
        assert pages[0].scales is not None
        assert pages[1].scales is not None
        torch.testing.assert_close(pages[0].scales, pages[1].scales, rtol=2**-7, atol=0)
        assert float((a - b).abs().max()) <= 1
    else:
        torch.testing.assert_close(a, b, **close)
    assert not pages[0].data[[0, 2]].any()  # other layers are as they were


def test_rope_writes_nothing_for_no_rows(kernels: NativeKernels) -> None:
    pages = KVPages.empty(GroupSpec((0,), 1, 16), 2, 16, "bf16")
    none = torch.empty(0, 3, 16, dtype=BF16)
    found = kernels.rope_store(
        none, torch.empty(0, 8, 2), torch.empty(0, dtype=torch.int64), pages, 0, 1, None, 1e-6
    )
    assert found.shape == (0, 1, 16)


@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_argmax(kernels: NativeKernels, dtype: torch.dtype) -> None:
    for width in (1, 15, 16, 17, 300, 49152):
        x = torch.randn(3, width).to(dtype)
        assert kernels.argmax(x).tolist() == x.float().numpy().argmax(1).tolist()
    x = torch.zeros(4, 100, dtype=dtype)
    x[0, [70, 20, 5]] = 1
    x[1, 99] = -torch.inf
    x[2, [50, 60]] = torch.nan
    x[3] = -torch.inf
    assert kernels.argmax(x).tolist() == [5, 0, 50, 0]


def test_every_rounding_to_e4m3(kernels: NativeKernels) -> None:
    """The quantiser itself, through a norm of one element whose size is known."""
    values = torch.cat([torch.arange(0, 470, 3.7), torch.logspace(-5, 2.7, 300)]).float()
    scale = (1 / values.clamp(min=1e-6)).float()
    for v, s in zip(values.tolist(), scale.tolist(), strict=True):
        one = torch.ones(1, 1)
        found = kernels.norm_quant(one, torch.ones(1), 0.0, torch.tensor([s]), "no-round").data
        wanted = to_e4m3(one * (1 / torch.tensor([s])))
        assert codes(found) == codes(wanted), v
