"""Rows times a matrix [outs, ins] whose numbers may have eight or four bits."""

from __future__ import annotations

import triton
import triton.language as tl

from agentmem.engine.gpu.kernels.bits import SOFT, from_e4m3, matmul, narrow, widen

PLAIN = tl.constexpr(0)
CODES = tl.constexpr(1)
"""e4m3 codes in uint8."""
BYTES = tl.constexpr(2)
"""int8."""
BOTH_CODES = tl.constexpr(3)
"""e4m3 codes on both sides."""


@triton.jit
def _finish(total, scale_ptr, bias_ptr, out_ptr, row, column, mask, rows, outs):
    """Scales by output, adds the bias, stores in the output's type."""
    if scale_ptr is not None:
        total *= tl.load(scale_ptr + column, mask=column < outs, other=0.0)[None, :]
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + column, mask=column < outs, other=0.0).to(tl.float32)
        total += bias[None, :]
    at = row[:, None].to(tl.int64) * outs + column[None, :]
    tl.store(out_ptr + at, narrow(total, out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def product(
    x_ptr,
    weight_ptr,
    out_ptr,
    x_scale_ptr,
    scale_ptr,
    bias_ptr,
    rows,
    outs,
    ins,
    x_row,
    KIND: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """out [rows, outs] = x [rows, ins] times the matrix. Sums run over `ins` in one order.

    Scales: x_scale one element (BOTH_CODES), scale float32 [outs] (all but PLAIN).
    """
    column = tl.program_id(0) * BN + tl.arange(0, BN)
    row = tl.program_id(1) * BM + tl.arange(0, BM)
    inner = tl.arange(0, BK)
    x_at = x_ptr + row[:, None].to(tl.int64) * x_row + inner[None, :]
    weight_at = weight_ptr + column[:, None].to(tl.int64) * ins + inner[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for begin in range(0, ins, BK):
        left = inner[None, :] < ins - begin
        x = tl.load(x_at + begin, mask=left & (row[:, None] < rows), other=0)
        weight = tl.load(weight_at + begin, mask=left & (column[:, None] < outs), other=0)
        if KIND == BOTH_CODES:
            if SOFT:
                x = from_e4m3(x, tl.float32)
                total = tl.dot(x, tl.trans(from_e4m3(weight, tl.float32)), total)
            else:
                x = x.to(tl.float8e4nv, bitcast=True)
                weight = weight.to(tl.float8e4nv, bitcast=True)
                # Hopper sums fp8 products in fewer than 32 bits unless told otherwise
                total = tl.dot(x, tl.trans(weight), total, max_num_imprecise_acc=32)
        else:
            weight = from_e4m3(weight, x.dtype) if KIND == CODES else widen(weight, x.dtype)
            total = matmul(x, tl.trans(weight), total)
    if KIND == BOTH_CODES:
        total *= tl.load(x_scale_ptr)
    mask = (row[:, None] < rows) & (column[None, :] < outs)
    _finish(total, scale_ptr, bias_ptr, out_ptr, row, column, mask, rows, outs)


@triton.jit
def product_nibbles(
    x_ptr,
    weight_ptr,
    out_ptr,
    scale_ptr,
    offset_ptr,
    bias_ptr,
    rows,
    outs,
    ins,
    x_row,
    HALF: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    """The same with 4-bit numbers: weight uint8 [outs, ins / 2], scale and offset (bf16, or
    none) [outs, ins / (2 * HALF)].

    A byte holds two neighbours, so even and odd inputs are summed apart, one group at a time.
    """
    column = tl.program_id(0) * BN + tl.arange(0, BN)
    row = tl.program_id(1) * BM + tl.arange(0, BM)
    inner = tl.arange(0, HALF)
    groups = ins // (2 * HALF)
    x_at = x_ptr + row[:, None].to(tl.int64) * x_row + 2 * inner[None, :]
    weight_at = weight_ptr + column[:, None].to(tl.int64) * (ins // 2) + inner[None, :]
    here, there = row[:, None] < rows, column < outs
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for group in range(groups):
        even = tl.load(x_at + group * 2 * HALF, mask=here, other=0.0)
        odd = tl.load(x_at + group * 2 * HALF + 1, mask=here, other=0.0)
        packed = tl.load(weight_at + group * HALF, mask=there[:, None], other=0).to(tl.int32)
        low = ((packed & 15) - 8).to(tl.float32).to(even.dtype)
        high = ((packed >> 4) - 8).to(tl.float32).to(even.dtype)
        part = matmul(even, tl.trans(low), tl.zeros((BM, BN), dtype=tl.float32))
        part = matmul(odd, tl.trans(high), part)
        scale = tl.load(scale_ptr + column.to(tl.int64) * groups + group, mask=there, other=0.0)
        total += part * scale[None, :]
        if offset_ptr is not None:
            offset_at = offset_ptr + column.to(tl.int64) * groups + group
            offset = tl.load(offset_at, mask=there, other=0.0).to(tl.float32)
            inputs = tl.sum(even.to(tl.float32) + odd.to(tl.float32), 1)
            total += inputs[:, None] * offset[None, :]
    mask = here & there[None, :]
    _finish(total, None, bias_ptr, out_ptr, row, column, mask, rows, outs)
