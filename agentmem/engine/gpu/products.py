"""Launches the products with matrices, and the search for the largest logit."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor
from torch.nn import functional as F

from agentmem.engine.gpu.devices import require_e4m3
from agentmem.engine.gpu.kernels import pointwise, products
from agentmem.engine.kernels.weights import QuantisedActivation, Weight

SMALL = 16
"""Rows up to which a plain matrix is read by our kernel; more go to the vendor's library."""
_PART = 4096


class Shape(NamedTuple):
    """Rows, outputs and inputs that a program works on at once."""

    rows: int
    outs: int
    ins: int
    warps: int


def shape_for(rows: int, invariant: bool) -> Shape:
    """The same shape whatever the rows, where results must not depend on them."""
    if rows <= 16 or invariant:
        return Shape(16, 32, 128, 4)
    return Shape(32, 64, 64, 4) if rows <= 64 else Shape(128, 128, 64, 8)


def linear(x: Tensor, weight: Weight, bias: Tensor | None, invariant: bool) -> Tensor:
    """x [n, in] (elements of a row neighbours) times the matrix, in x's dtype."""
    if weight.format in ("fp32", "bf16"):
        if len(x) > SMALL and not invariant:
            return F.linear(x.to(weight.data.dtype), weight.data, bias).to(x.dtype)
        return _launch(x.to(weight.data.dtype), weight, bias, x.dtype, products.PLAIN, invariant)
    if weight.format == "int4":
        return _nibbles(x, weight, bias, invariant)
    if weight.format == "fp8":
        require_e4m3(x.device)
    kind = products.CODES if weight.format == "fp8" else products.BYTES
    return _launch(x, weight, bias, x.dtype, kind, invariant)


def linear_quantised(
    x: QuantisedActivation, weight: Weight, bias: Tensor | None, invariant: bool
) -> Tensor:
    """An fp8 activation times an fp8 matrix, in the activation's original dtype."""
    require_e4m3(x.data.device)
    kind = products.BOTH_CODES
    return _launch(x.data, weight, bias, x.out_dtype, kind, invariant, x.scale)


def _launch(
    x: Tensor,
    weight: Weight,
    bias: Tensor | None,
    dtype: torch.dtype,
    kind: object,
    invariant: bool,
    x_scale: Tensor | None = None,
) -> Tensor:
    rows, outs = len(x), weight.rows
    out = torch.empty((rows, outs), dtype=dtype, device=x.device)
    if not out.numel():
        return out
    shape = shape_for(rows, invariant)
    grid = (triton.cdiv(outs, shape.outs), triton.cdiv(rows, shape.rows))
    products.product[grid](
        _bytes(x), _bytes(weight.data), out, x_scale, weight.scale, bias,
        rows, outs, weight.columns, x.stride(0),
        KIND=kind, BM=shape.rows, BN=shape.outs, BK=shape.ins, num_warps=shape.warps,
    )  # fmt: skip
    return out


def _nibbles(x: Tensor, weight: Weight, bias: Tensor | None, invariant: bool) -> Tensor:
    rows, outs = len(x), weight.rows
    out = torch.empty((rows, outs), dtype=x.dtype, device=x.device)
    if not out.numel():
        return out
    shape = shape_for(rows, invariant)
    grid = (triton.cdiv(outs, shape.outs), triton.cdiv(rows, shape.rows))
    products.product_nibbles[grid](
        x, weight.data, out, weight.scale, weight.offset, bias,
        rows, outs, weight.columns, x.stride(0),
        HALF=(weight.group or 32) // 2, BM=shape.rows, BN=shape.outs, num_warps=shape.warps,
    )  # fmt: skip
    return out


def _bytes(data: Tensor) -> Tensor:
    """Codes as bytes: the kernels know what they stand for."""
    return data.view(torch.uint8) if data.dtype == torch.float8_e4m3fn else data


def largest(logits: Tensor) -> Tensor:
    """Place of the largest logit of each row [n, vocabulary], the first of equals: int64 [n]."""
    rows, size = logits.shape
    parts = triton.cdiv(size, _PART)
    peaks = torch.empty((rows, parts), dtype=torch.float32, device=logits.device)
    places = torch.empty((rows, parts), dtype=torch.int32, device=logits.device)
    out = torch.empty(rows, dtype=torch.int64, device=logits.device)
    if rows:
        pointwise.largest_part[(rows, parts)](
            logits, peaks, places, logits.stride(0), size, parts, BLOCK=_PART, num_warps=8
        )
        pointwise.largest_of_parts[(rows,)](
            peaks, places, out, parts, BLOCK=max(16, triton.next_power_of_2(parts))
        )
    return out
