"""The gate of a feed-forward block, and the largest logit."""

from __future__ import annotations

import triton
import triton.language as tl

from agentmem.engine.gpu.kernels.bits import narrow


@triton.jit
def gate_rows(both_ptr, out_ptr, width, SILU: tl.constexpr, BLOCK: tl.constexpr):
    """act(first half) * second half of rows [2 * width]. One program a row and piece.

    The activation is rounded to the rows' type before it multiplies, as it is when stored.
    """
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < width
    dtype: tl.constexpr = both_ptr.dtype.element_ty
    gate = tl.load(both_ptr + row * 2 * width + at, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(both_ptr + row * 2 * width + width + at, mask=mask, other=0.0).to(tl.float32)
    # 0.5 * (1 + tanh(u)) is the logistic function of 2 * u
    turn = gate if SILU else 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
    active = narrow(gate / (1.0 + tl.exp(-turn)), dtype).to(tl.float32)
    tl.store(out_ptr + row * width + at, narrow(active * up, dtype), mask=mask)


@triton.jit
def largest_part(logits_ptr, peak_ptr, place_ptr, row_size, size, parts, BLOCK: tl.constexpr):
    """Largest value and its first place in a piece of a row. NaN is never the largest."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(logits_ptr + row * row_size + at, mask=at < size, other=float("-inf"))
    value = value.to(tl.float32)
    value = tl.where(value == value, value, float("-inf"))
    peak = tl.max(value, axis=0)
    place = tl.min(tl.where((value == peak) & (at < size), at, 0x7FFFFFFF), axis=0)
    tl.store(peak_ptr + row * parts + part, peak)
    tl.store(place_ptr + row * parts + part, place)


@triton.jit
def largest_of_parts(peak_ptr, place_ptr, out_ptr, parts, BLOCK: tl.constexpr):
    """The first place of the largest value of a row, int64."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    peak = tl.load(peak_ptr + row * parts + at, mask=at < parts, other=float("-inf"))
    place = tl.load(place_ptr + row * parts + at, mask=at < parts, other=0x7FFFFFFF)
    first = tl.min(tl.where(peak == tl.max(peak, axis=0), place, 0x7FFFFFFF), axis=0)
    tl.store(out_ptr + row, first.to(tl.int64))
