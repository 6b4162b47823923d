"""RMS norms of rows, with the addition before and the quantisation behind. One program a row."""

from __future__ import annotations

import triton
import triton.language as tl

from agentmem.engine.gpu.kernels.bits import narrow, to_e4m3


@triton.jit
def _stream(x_at, delta_at, mask, dtype: tl.constexpr, ROUND: tl.constexpr):
    """The row that is normed, in float32. With a delta, x becomes the rounded sum in place."""
    value = tl.load(x_at, mask=mask, other=0.0).to(tl.float32)
    if delta_at is not None:
        value += tl.load(delta_at, mask=mask, other=0.0).to(tl.float32)
        kept = narrow(value, dtype)
        tl.store(x_at, kept, mask=mask)
        if ROUND:
            value = kept.to(tl.float32)
    return value


@triton.jit
def _normed(value, weight, width, eps):
    mean = tl.sum(value * value, axis=0) / width
    rate = tl.div_rn(1.0, tl.sqrt_rn(mean + eps))
    return (value * rate) * weight


@triton.jit
def norm_rows(
    x_ptr, delta_ptr, weight_ptr, out_ptr, x_row, delta_row, width, eps, BLOCK: tl.constexpr
):
    """(add +) norm: out [rows, width] in its own type, weight float32."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    mask = at < width
    x_at = x_ptr + row * x_row + at
    if delta_ptr is not None:
        value = _stream(x_at, delta_ptr + row * delta_row + at, mask, x_ptr.dtype.element_ty, True)
    else:
        value = _stream(x_at, None, mask, x_ptr.dtype.element_ty, True)
    weight = tl.load(weight_ptr + at, mask=mask, other=0.0).to(tl.float32)
    normed = _normed(value, weight, width, eps)
    tl.store(out_ptr + row * width + at, narrow(normed, out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def norm_quant_rows(
    x_ptr,
    delta_ptr,
    weight_ptr,
    codes_ptr,
    scale_ptr,
    x_row,
    delta_row,
    width,
    eps,
    ROUND: tl.constexpr,
    DIRECT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """(add +) norm + static quantisation: codes uint8 [rows, width] of norm / scale.

    With ROUND, the sum is rounded to x's type before the norm and the norm before the division,
    as separate kernels would; without, everything stays in float32.
    """
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    mask = at < width
    x_at = x_ptr + row * x_row + at
    if delta_ptr is not None:
        value = _stream(x_at, delta_ptr + row * delta_row + at, mask, x_ptr.dtype.element_ty, ROUND)
    else:
        value = _stream(x_at, None, mask, x_ptr.dtype.element_ty, ROUND)
    weight = tl.load(weight_ptr + at, mask=mask, other=0.0).to(tl.float32)
    normed = _normed(value, weight, width, eps)
    if ROUND:
        normed = narrow(normed, x_ptr.dtype.element_ty).to(tl.float32)
    codes = to_e4m3(normed * tl.div_rn(1.0, tl.load(scale_ptr)), DIRECT)
    tl.store(codes_ptr + row * width + at, codes, mask=mask)


@triton.jit
def quant_all(x_ptr, codes_ptr, scale_ptr, count, DIRECT: tl.constexpr, BLOCK: tl.constexpr):
    """Static quantisation alone: codes uint8 of x / scale, any shape."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    value = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    codes = to_e4m3(value * tl.div_rn(1.0, tl.load(scale_ptr)), DIRECT)
    tl.store(codes_ptr + at, codes, mask=mask)
