"""Attention over pages: queries of many rows at once, or one row over many pieces of its context.

Scores are kept in units of log 2. Query heads that share a key head are rows of one tile.
"""

from __future__ import annotations

import triton
import triton.language as tl

from agentmem.engine.gpu.kernels.bits import matmul, narrow, widen
from agentmem.engine.gpu.kernels.pages import page_rows, sequence_of

UNSEEN = tl.constexpr(-1.0e30)


@triton.jit
def _tile(
    q,
    key_ptr,
    value_ptr,
    key_scale_ptr,
    value_scale_ptr,
    at,
    present,
    seen,
    peak,
    mass,
    out,
    scale,
    DIM: tl.constexpr,
    BD: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """Takes keys and values at page rows `at` [BN] into the running softmax of q [BM, BD].

    `present` [BN] is what may be read, `seen` [BM, BN] what each row sees of it.
    """
    wide = tl.arange(0, BD)
    spot = at[:, None] * DIM + wide[None, :]
    mask = present[:, None] & (wide < DIM)[None, :]
    key = tl.load(key_ptr + spot, mask=mask, other=0)
    score = matmul(q, tl.trans(widen(key, COMPUTE)), tl.zeros(seen.shape, dtype=tl.float32)) * scale
    if key_scale_ptr is not None:
        score *= tl.load(key_scale_ptr + at, mask=present, other=0.0)[None, :]
    score = tl.where(seen, score, UNSEEN)
    higher = tl.maximum(peak, tl.max(score, axis=1))
    weight = tl.where(seen, tl.exp2(score - higher[:, None]), 0.0)
    fade = tl.exp2(peak - higher)
    mass = mass * fade + tl.sum(weight, axis=1)
    if value_scale_ptr is not None:
        weight *= tl.load(value_scale_ptr + at, mask=present, other=0.0)[None, :]
    value = tl.load(value_ptr + spot, mask=mask, other=0)
    out = out * fade[:, None]
    out = matmul(narrow(weight, COMPUTE), widen(value, COMPUTE), out)
    return higher, mass, out


@triton.jit
def _range(
    q, key_ptr, value_ptr, key_scale_ptr, value_scale_ptr, table, begin, stop, position, live,
    kv_head, kv_heads, block_size, scale, window,
    DIM: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    WINDOWED: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """Running softmax of q [BM, BD] over positions begin..stop of one sequence.

    Each row sees positions up to its own, and no further back than the window; nothing where it
    is not `live`. Gives the largest score [BM], the mass [BM] and the sum [BM, BD].
    """
    peak = tl.full((BM,), UNSEEN, dtype=tl.float32)
    mass = tl.zeros((BM,), dtype=tl.float32)
    out = tl.zeros((BM, BD), dtype=tl.float32)
    for base in range(begin // BN * BN, stop, BN):
        place = base + tl.arange(0, BN)
        present = (place >= begin) & (place < stop)
        seen = present[None, :] & (place[None, :] <= position[:, None]) & live[:, None]
        if WINDOWED:
            seen = seen & (place[None, :] > position[:, None] - window)
        at = page_rows(table, place, present, kv_head, kv_heads, block_size)
        peak, mass, out = _tile(
            q, key_ptr, value_ptr, key_scale_ptr, value_scale_ptr,
            at, present, seen, peak, mass, out, scale, DIM, BD, COMPUTE,
        )  # fmt: skip
    return peak, mass, out


@triton.jit
def prefill_tiles(
    q_ptr, key_ptr, value_ptr, key_scale_ptr, value_scale_ptr, table_ptr, start_ptr, context_ptr,
    out_ptr, sequences, table_row, scale, window, heads, kv_heads, block_size,
    DIM: tl.constexpr, BD: tl.constexpr, GROUP: tl.constexpr, BG: tl.constexpr,
    BQ: tl.constexpr, BN: tl.constexpr,
    WINDOWED: tl.constexpr, LEAVE_SINGLE: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """Grid (tiles of BQ rows, kv_heads): causal attention, out [rows, heads, DIM].

    With LEAVE_SINGLE, sequences of one row are left to `decode_parts`.
    """
    tile = tl.program_id(0)
    kv_head = tl.program_id(1)
    seq = sequence_of(start_ptr, tile, sequences, BQ)
    first = tl.load(start_ptr + seq)
    last = tl.load(start_ptr + seq + 1)
    begin = first + (tile - first // BQ - seq) * BQ
    left = last - begin
    if LEAVE_SINGLE:
        left = tl.where(last - first == 1, 0, left)
    if left > 0:
        lane = tl.arange(0, BQ * BG)
        row = begin + lane // BG
        member = lane % BG
        live = (row < last) & (member < GROUP)
        behind = tl.load(context_ptr + seq) - last
        wide = tl.arange(0, BD)
        mask = live[:, None] & (wide < DIM)[None, :]
        head_row = row.to(tl.int64) * heads + kv_head * GROUP + member
        spot = head_row[:, None] * DIM + wide[None, :]
        q = tl.load(q_ptr + spot, mask=mask, other=0.0).to(COMPUTE)
        low = behind * 0
        if WINDOWED:
            low = tl.maximum(behind + begin - window + 1, 0)
        _, mass, out = _range(
            q, key_ptr, value_ptr, key_scale_ptr, value_scale_ptr,
            table_ptr + seq.to(tl.int64) * table_row, low, behind + tl.minimum(begin + BQ, last),
            behind + row, live, kv_head, kv_heads, block_size, scale, window,
            DIM, BD, BQ * BG, BN, WINDOWED, COMPUTE,
        )  # fmt: skip
        out = out / tl.where(live, mass, 1.0)[:, None]
        tl.store(out_ptr + spot, narrow(out, out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _single(
    start_ptr, context_ptr, index, sequences, window, WINDOWED: tl.constexpr, EACH: tl.constexpr
):
    """(sequence, row, first and last + 1 visible position) of what a decode program works on.

    With EACH, `index` is a row of any sequence; without, a sequence, and the range is empty where
    it has not exactly one row.
    """
    if EACH:
        seq = sequence_of(start_ptr, index, sequences, 0)
        row = index
    else:
        seq = index
        row = tl.load(start_ptr + index)
    last = tl.load(start_ptr + seq + 1)
    high = tl.load(context_ptr + seq) - last + row + 1
    low = high * 0
    if WINDOWED:
        low = tl.maximum(high - window, 0)
    if not EACH:
        high = tl.where(last - row == 1, high, 0)
    return seq, row, low, high


@triton.jit
def decode_parts(
    q_ptr, key_ptr, value_ptr, key_scale_ptr, value_scale_ptr, table_ptr, start_ptr, context_ptr,
    part_ptr, peak_ptr, mass_ptr,
    sequences, table_row, parts, scale, window, heads, kv_heads, block_size,
    DIM: tl.constexpr, BD: tl.constexpr, GROUP: tl.constexpr, BG: tl.constexpr,
    SPLIT: tl.constexpr, BN: tl.constexpr,
    WINDOWED: tl.constexpr, EACH: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """Grid (sequences or rows, kv_heads, parts): one row over SPLIT positions of its context.

    Leaves part [rows, heads, parts, DIM] (not divided by its mass), peak and mass
    [rows, heads, parts]; nothing for parts in which the row sees no position.
    """
    kv_head = tl.program_id(1)
    part = tl.program_id(2)
    seq, row, low, high = _single(
        start_ptr, context_ptr, tl.program_id(0), sequences, window, WINDOWED, EACH
    )
    begin = tl.maximum(low, part * SPLIT)
    stop = tl.minimum(high, (part + 1) * SPLIT)
    if begin < stop:
        member = tl.arange(0, BG)
        live = member < GROUP
        wide = tl.arange(0, BD)
        mask = live[:, None] & (wide < DIM)[None, :]
        head_row = row.to(tl.int64) * heads + kv_head * GROUP + member
        q = tl.load(q_ptr + head_row[:, None] * DIM + wide[None, :], mask=mask, other=0.0)
        peak, mass, out = _range(
            q.to(COMPUTE), key_ptr, value_ptr, key_scale_ptr, value_scale_ptr,
            table_ptr + seq.to(tl.int64) * table_row, begin, stop,
            high - 1 + member * 0, live, kv_head, kv_heads, block_size, scale, window,
            DIM, BD, BG, BN, WINDOWED, COMPUTE,
        )  # fmt: skip
        at = head_row * parts + part
        tl.store(part_ptr + at[:, None] * DIM + wide[None, :], out, mask=mask)
        tl.store(peak_ptr + at, peak, mask=live)
        tl.store(mass_ptr + at, mass, mask=live)


@triton.jit
def decode_join(
    part_ptr,
    peak_ptr,
    mass_ptr,
    start_ptr,
    context_ptr,
    out_ptr,
    sequences,
    parts,
    window,
    heads,
    DIM: tl.constexpr,
    BD: tl.constexpr,
    SPLIT: tl.constexpr,
    BP: tl.constexpr,
    WINDOWED: tl.constexpr,
    EACH: tl.constexpr,
):
    """Grid (sequences or rows, heads): joins what `decode_parts` left, out [rows, heads, DIM]."""
    _, row, low, high = _single(
        start_ptr, context_ptr, tl.program_id(0), sequences, window, WINDOWED, EACH
    )
    if low < high:
        wide = tl.arange(0, BD)
        head_row = row.to(tl.int64) * heads + tl.program_id(1)
        end = tl.cdiv(high, SPLIT)
        peak = tl.max(tl.full((BP,), UNSEEN, dtype=tl.float32), axis=0)
        mass = tl.sum(tl.zeros((BP,), dtype=tl.float32), axis=0)
        out = tl.zeros((BD,), dtype=tl.float32)
        for base in range(low // SPLIT, end, BP):
            part = base + tl.arange(0, BP)
            at = head_row * parts + part
            here = part < end
            peaks = tl.load(peak_ptr + at, mask=here, other=UNSEEN)
            masses = tl.load(mass_ptr + at, mask=here, other=0.0)
            mask = here[:, None] & (wide < DIM)[None, :]
            piece = tl.load(part_ptr + at[:, None] * DIM + wide[None, :], mask=mask, other=0.0)
            higher = tl.maximum(peak, tl.max(peaks, axis=0))
            fades = tl.exp2(peaks - higher)
            fade = tl.exp2(peak - higher)
            mass = mass * fade + tl.sum(masses * fades, axis=0)
            out = out * fade + tl.sum(piece * fades[:, None], axis=0)
            peak = higher
        spot = out_ptr + head_row * DIM + wide
        tl.store(spot, narrow(out / mass, out_ptr.dtype.element_ty), mask=wide < DIM)
