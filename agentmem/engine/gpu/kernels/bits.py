"""Conversions between number formats, done by hand where the interpreter's own are wrong."""

from __future__ import annotations

import triton
import triton.language as tl

SOFT = tl.constexpr(bool(triton.knobs.runtime.interpret))
"""In the interpreter, whose casts to bf16 cut bits off, whose e4m3 casts lose carries, and which
takes bf16 for integers in products and integers for bf16 in casts."""


@triton.jit
def narrow(value, dtype: tl.constexpr):
    """float32 in another type, to nearest even."""
    if SOFT and dtype == tl.bfloat16:
        bits = value.to(tl.int32, bitcast=True)
        even = bits + 0x7FFF + ((bits >> 16) & 1)
        near = (even & -65536).to(tl.float32, bitcast=True)
        value = tl.where(value == value, near, value)
    return value.to(dtype)


@triton.jit
def widen(value, dtype: tl.constexpr):
    """Numbers of a page or a matrix in a type that holds them exactly."""
    if SOFT:
        return value.to(tl.float32).to(dtype)
    return value.to(dtype)


@triton.jit
def nearest_integer(value):
    """To the nearest whole number, ties to even; |value| below 2^22."""
    magic = 12582912.0
    return (value + magic) - magic


@triton.jit
def to_e4m3(value, DIRECT: tl.constexpr):
    """float32 as e4m3 codes in uint8: to nearest even, past 448 to 448, any NaN to 0x7f.

    DIRECT where a device converts float32 at once. By hand elsewhere: on sm_89 the compiler goes
    through float16, and a value rounded twice may end on the wrong side of a tie.
    """
    near = tl.where(value == value, tl.minimum(tl.maximum(value, -448.0), 448.0), value)
    if DIRECT:
        return near.to(tl.float8e4nv).to(tl.uint8, bitcast=True)
    bits = near.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    # three bits of mantissa stay; a carry runs into the exponent, whose bias is 120 smaller
    normal = ((size + 0x7FFFF + ((size >> 20) & 1)) >> 20) - (120 << 3)
    # below 2^-6 codes count steps of 2^-9, and an addition does the rounding
    steps = size.to(tl.float32, bitcast=True) * 512.0 + 12582912.0
    code = tl.where(size < (121 << 23), steps.to(tl.int32, bitcast=True) & 0xF, normal)
    code = tl.where(value == value, code | ((bits >> 24) & 0x80), 0x7F)
    return code.to(tl.uint8)


@triton.jit
def from_e4m3(code, dtype: tl.constexpr):
    """Codes in uint8 as numbers; exact in float32, float16 and bfloat16."""
    if SOFT:
        size = code.to(tl.int32) & 0x7F
        normal = ((size << 20) + (120 << 23)).to(tl.float32, bitcast=True)
        value = tl.where(size < 8, size.to(tl.float32) * 0.001953125, normal)
        value = tl.where(size == 0x7F, float("nan"), value)
        return tl.where(code.to(tl.int32) > 0x7F, -value, value).to(dtype)
    return code.to(tl.float8e4nv, bitcast=True).to(dtype)


@triton.jit
def matmul(a, b, total):
    """total + a @ b, in float32 for any type; float32 operands are not cut to fewer bits."""
    if SOFT:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), total)
    return tl.dot(a, b, total, input_precision="ieee")
