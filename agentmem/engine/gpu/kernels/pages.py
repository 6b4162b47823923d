"""Into the pages: norms of queries and keys, rotation, storing; and where a position lies."""

from __future__ import annotations

import triton
import triton.language as tl

from agentmem.engine.gpu.kernels.bits import narrow, nearest_integer


@triton.jit
def _store_row(first, second, data_ptr, scale_ptr, at, pair, mask, DIM: tl.constexpr):
    """One row into a page, neighbours apart; int8 pages get the row's scale."""
    dtype: tl.constexpr = data_ptr.dtype.element_ty
    spot = data_ptr + at * DIM + 2 * pair
    if scale_ptr is not None:
        first_size, second_size = tl.abs(first), tl.abs(second)
        peak = tl.max(tl.maximum(first_size, second_size), axis=0)
        finite = (first_size < float("inf")) & (second_size < float("inf"))
        broken = tl.max(tl.where(finite, 0, 1), axis=0) > 0
        scale = tl.where(peak > 0.0, tl.div_rn(peak, 127.0), 1.0)
        # a row with a NaN or an infinity becomes NaN as a whole: its scale is, its codes are 1
        first = tl.where(broken, 1.0, nearest_integer(tl.div_rn(first, scale)))
        second = tl.where(broken, 1.0, nearest_integer(tl.div_rn(second, scale)))
        tl.store(scale_ptr + at, tl.where(broken, float("nan"), scale))
        tl.store(spot, first.to(dtype), mask=mask)
        tl.store(spot + 1, second.to(dtype), mask=mask)
    else:
        tl.store(spot, narrow(first, dtype), mask=mask)
        tl.store(spot + 1, narrow(second, dtype), mask=mask)


@triton.jit
def rope_store(
    qkv_ptr,
    turn_ptr,
    slot_ptr,
    norm_ptr,
    q_ptr,
    key_ptr,
    value_ptr,
    key_scale_ptr,
    value_scale_ptr,
    heads,
    kv_heads,
    block_size,
    eps,
    DIM: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """Grid (rows, heads + 2 * kv_heads): queries to q [rows, heads, DIM], the rest into pages.

    Normed (where there is a norm [heads + kv_heads, DIM]) and rounded, turned, rounded.
    """
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    pair = tl.arange(0, PAIRS)
    mask = pair < DIM // 2
    dtype: tl.constexpr = qkv_ptr.dtype.element_ty
    source = qkv_ptr + (row * (heads + 2 * kv_heads) + head) * DIM + 2 * pair
    first = tl.load(source, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(source + 1, mask=mask, other=0.0).to(tl.float32)
    if head < heads + kv_heads:
        if norm_ptr is not None:
            mean = (tl.sum(first * first, axis=0) + tl.sum(second * second, axis=0)) / DIM
            rate = tl.div_rn(1.0, tl.sqrt_rn(mean + eps))
            weight = norm_ptr + head * DIM + 2 * pair
            first = first * rate * tl.load(weight, mask=mask, other=0.0)
            second = second * rate * tl.load(weight + 1, mask=mask, other=0.0)
            first = narrow(first, dtype).to(tl.float32)
            second = narrow(second, dtype).to(tl.float32)
        turn = turn_ptr + row * DIM + 2 * pair
        cosine = tl.load(turn, mask=mask, other=0.0)
        sine = tl.load(turn + 1, mask=mask, other=0.0)
        turned = first * cosine - second * sine
        second = narrow(second * cosine + first * sine, dtype).to(tl.float32)
        first = narrow(turned, dtype).to(tl.float32)
    if head < heads:
        spot = q_ptr + (row * heads + head) * DIM + 2 * pair
        tl.store(spot, narrow(first, dtype), mask=mask)
        tl.store(spot + 1, narrow(second, dtype), mask=mask)
    else:
        slot = tl.load(slot_ptr + row)
        block, offset = slot // block_size, slot % block_size
        kv_head = (head - heads) % kv_heads
        at = (block * kv_heads + kv_head) * block_size + offset
        if head < heads + kv_heads:
            _store_row(first, second, key_ptr, key_scale_ptr, at, pair, mask, DIM)
        else:
            _store_row(first, second, value_ptr, value_scale_ptr, at, pair, mask, DIM)


@triton.jit
def page_rows(table_ptr, position, seen, kv_head, kv_heads, block_size):
    """Row in the pages [blocks, kv_heads, block_size] of each position of a sequence."""
    block = tl.load(table_ptr + position // block_size, mask=seen, other=0).to(tl.int64)
    return (block * kv_heads + kv_head) * block_size + position % block_size


@triton.jit
def sequence_of(start_ptr, index, sequences, BY: tl.constexpr):
    """The sequence of a row (BY = 0), or of a tile of BY rows, none of which spans two.

    Tiles are counted so that sequence i begins with tile starts[i] // BY + i; that leaves at
    most one empty tile behind each.
    """
    low = index * 0
    high = low + sequences
    while high - low > 1:
        middle = (low + high) // 2
        first = tl.load(start_ptr + middle)
        if BY > 0:
            first = first // BY + middle
        if first <= index:
            low = middle
        else:
            high = middle
    return low
