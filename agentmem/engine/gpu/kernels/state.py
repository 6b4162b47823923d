"""Moves recurrent state between columns, as `agentmem.engine.state.kernels` does in torch.

Decisions come from a snapshot of the counters, which no program writes; what programs write to is
read by none of the others, but for windows that are shifted within a block: there one program
moves whole rows of tokens, and reads all it moves before it writes.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _address(base_ptr, table_ptr, table_row, slot, column, stride):
    """Where the block of a slot's column begins."""
    block = tl.load(table_ptr + slot * table_row + column).to(tl.int64)
    return base_ptr + block * stride


@triton.jit
def _shift_window(
    source, target, bias, width, token_step, dim_step, dims, part,
    WIDTH: tl.constexpr, DIMS: tl.constexpr,
):  # fmt: skip
    """Some dimensions of a window, `bias` tokens to the left; all of them are read first."""
    token = tl.arange(0, WIDTH)[:, None]
    dim = part * DIMS + tl.arange(0, DIMS)[None, :]
    mask = (token < width - bias) & (dim < dims)
    value = tl.load(source + (token + bias) * token_step + dim * dim_step, mask=mask)
    # A value may be needed by a lane other than the one that overwrites it.
    tl.debug_barrier()
    tl.store(target + token * token_step + dim * dim_step, value, mask=mask)


@triton.jit
def _copy_state(source, target, count, part, parts, BLOCK: tl.constexpr):
    """A part of a recurrent state."""
    each = tl.cdiv(count, parts)
    stop = tl.minimum((part + 1) * each, count)
    for start in range(part * each, stop, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(target + at, tl.load(source + at, mask=at < stop), mask=at < stop)


@triton.jit
def _move(
    base_ptr, table_ptr, table_row, slot, src, dst, bias, stride, count, width, token_step,
    dim_step, dims, part, parts, WIDTH: tl.constexpr, DIMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    target = _address(base_ptr, table_ptr, table_row, slot, dst, stride)
    if WIDTH > 0:
        source = _address(base_ptr, table_ptr, table_row, slot, src, stride)
        pieces = tl.cdiv(dims, DIMS)
        for piece in range(part, pieces, parts):
            _shift_window(
                source, target, bias, width, token_step, dim_step, dims, piece, WIDTH, DIMS
            )
    else:
        source = _address(base_ptr, table_ptr, table_row, slot, src + bias, stride)
        _copy_state(source, target, count, part, parts, BLOCK)


@triton.jit
def postprocess_state(
    base_ptr, place_ptr, table_ptr, seen_ptr, accepted_ptr, column_ptr, computed_ptr, mapping_ptr,
    table_row, block, stride, count, width, token_step, dim_step, dims, parts,
    FIRST: tl.constexpr, WIDTH: tl.constexpr, DIMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """States of one shape, programs (rows, states, parts): the checkpoint of a boundary crossed.

    `seen_ptr` is a copy of `accepted_ptr`, made before; the latter is written by one program a
    row. `place_ptr` int64 [states] tells where each state begins behind `base_ptr`. A recurrent
    state has WIDTH 0. All but `block` is counted in elements.
    """
    slot = tl.load(mapping_ptr + tl.program_id(0)).to(tl.int64)
    state, part = tl.program_id(1), tl.program_id(2)
    if slot >= 0:
        took, new = tl.load(seen_ptr + slot), tl.load(computed_ptr + slot)
        src = tl.load(column_ptr + slot)
        running = new - took + 1
        aligned = new // block * block
        if (aligned >= running) & (aligned > 0):
            bias, dst = aligned - running, aligned // block - 1
            if (dst != src) | (bias > 0):
                _move(
                    base_ptr + tl.load(place_ptr + state), table_ptr, table_row, slot, src, dst,
                    bias, stride, count, width, token_step, dim_step, dims, part, parts,
                    WIDTH, DIMS, BLOCK,
                )  # fmt: skip
            if FIRST and (dst == src) & (state + part == 0):
                tl.store(accepted_ptr + slot, 1)


@triton.jit
def precopy_state(
    base_ptr, place_ptr, table_ptr, source_ptr, offset_ptr, column_ptr, mapping_ptr,
    table_row, stride, count, width, token_step, dim_step, dims, parts,
    WIDTH: tl.constexpr, DIMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """States of one shape, programs (rows, states, parts): into a running column that is new."""
    row, part = tl.program_id(0), tl.program_id(2)
    slot = tl.load(mapping_ptr + row).to(tl.int64)
    if slot >= 0:
        src, dst = tl.load(source_ptr + row), tl.load(column_ptr + slot)
        if (src >= 0) & (src != dst):
            _move(
                base_ptr + tl.load(place_ptr + tl.program_id(1)), table_ptr, table_row, slot, src,
                dst, tl.load(offset_ptr + row), stride, count, width, token_step, dim_step, dims,
                part, parts,
                WIDTH, DIMS, BLOCK,
            )  # fmt: skip
