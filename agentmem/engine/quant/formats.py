"""Matrices in fewer bits and back; fused matrices joined and reordered without touching a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from agentmem.engine.kernels.weights import Weight, WeightFormat
from agentmem.errors import DataError

E4M3 = torch.float8_e4m3fn
E4M3_MAX = 448.0
INT4_GROUPS = (32, 64)
_PIECE = 1 << 22
"""Elements worked on at once: bounds the float32 copies beside a large embedding."""
_EXACT = 1e-7
"""Mean squared error of a group, as part of its span's square, below which it lies on a grid."""
_TRIED = ((15, 0.95), (15, 0.9), (14, 1.0), (13, 1.0))
"""Grids tried for a group: steps from its smallest to its largest value, part of these kept."""


def quantise(tensor: Tensor, format: WeightFormat, group: int = 32) -> Weight:
    """A matrix [out, in] in a format; `group` is of int4 only.

    int8 and fp8 take the scale of a row from its largest value, so nothing is clipped; a row of
    zeros has scale 1. Raises DataError for values that are not finite and for a width that int4
    groups do not divide.
    """
    if format in ("fp32", "bf16"):
        return Weight(format, tensor.to(_PLAIN[format]))
    if format == "int4":
        return _quantise_int4(tensor, group)
    pieces = [_rowwise(piece, format) for piece in _pieces(tensor)]
    data = _cat([data for data, _ in pieces])
    return Weight(format, data, torch.cat([scale for _, scale in pieces]))


def dequantise(weight: Weight, dtype: torch.dtype = torch.float32) -> Tensor:
    """The matrix [out, in] that a weight stands for, multiplied in float32, then rounded once."""
    if weight.scale is None:
        return weight.data.to(dtype)
    out = torch.empty((weight.rows, weight.columns), dtype=dtype)
    step = max(1, _PIECE // max(1, weight.columns))
    for start in range(0, weight.rows, step):
        rows = slice(start, start + step)
        scale = weight.scale[rows]
        if weight.format == "int4":
            values = _unpack(weight.data[rows]).view(*scale.shape, -1) * scale[..., None]
            if weight.offset is not None:
                values += weight.offset[rows][..., None]
            out[rows] = values.flatten(1)
        else:
            out[rows] = weight.data[rows].float() * scale[:, None]
    return out


def to_e4m3(values: Tensor) -> Tensor:
    """float32 to e4m3fn: clamped to +-448, to nearest even; any NaN becomes the positive, 0x7f."""
    clamped = values.clamp(-E4M3_MAX, E4M3_MAX)
    return torch.where(clamped.isnan(), torch.nan, clamped).to(E4M3)


def join(parts: Sequence[Weight]) -> Weight:
    """One matrix of the rows of several of the same format, as fused projections are.

    Every row keeps its scale; the static input scale is the largest (all parts see one input), or
    none when a part has none.
    """
    first = parts[0]
    kinds = {(p.format, p.group, p.columns, p.offset is None) for p in parts}
    if len(kinds) > 1:
        raise DataError("fused matrices must have one format and one width")
    inputs = [p.input_scale for p in parts]
    known = [scale.reshape(1) for scale in inputs if scale is not None]
    return Weight(
        first.format,
        _cat([p.data for p in parts]),
        _joined([p.scale for p in parts]),
        first.group,
        torch.cat(known).amax(0, keepdim=True) if len(known) == len(inputs) else None,
        offset=_joined([p.offset for p in parts]),
    )


def reorder(weight: Weight, rows: Tensor) -> Weight:
    """The matrix with its rows in another order: row i is `rows[i]` of the given one."""
    return part_of(weight, rows)


def part_of(weight: Weight, rows: Tensor | slice) -> Weight:
    """Some rows of a matrix, by their numbers or as a slice."""
    return replace(
        weight,
        data=_select(weight.data, rows),
        scale=None if weight.scale is None else weight.scale[rows],
        offset=None if weight.offset is None else weight.offset[rows],
        packed=None,
    )


_PLAIN = {"fp32": torch.float32, "bf16": torch.bfloat16}


def _rowwise(piece: Tensor, format: WeightFormat) -> tuple[Tensor, Tensor]:
    values = piece.float()
    top = 127.0 if format == "int8" else E4M3_MAX
    scale = _finite(values.abs().amax(dim=1)) / top
    scale = torch.where(scale == 0, 1.0, scale)
    scaled = values / scale[:, None]
    if format == "int8":
        return scaled.round().clamp(-127, 127).to(torch.int8), scale
    return to_e4m3(scaled), scale


def _quantise_int4(tensor: Tensor, group: int) -> Weight:
    if group not in INT4_GROUPS or tensor.shape[1] % group:
        raise DataError(f"int4 groups of {group} do not divide {tensor.shape[1]} inputs")
    pieces = [_grouped(piece.float(), group) for piece in _pieces(tensor)]
    data, scale, offset = (torch.cat(part) for part in zip(*pieces, strict=True))
    return Weight("int4", data, scale, group, offset=offset)


def _grouped(values: Tensor, group: int) -> tuple[Tensor, Tensor, Tensor]:
    """Nibbles, scales and offsets of a matrix [out, in].

    A group whose values lie on a grid of 16 steps, as of a file in four bits, is found at once;
    for the others, coarser grids and such as clip are tried, and the least squared error taken.
    """
    x = values.reshape(-1, group)
    low, high = x.amin(dim=1, keepdim=True), x.amax(dim=1, keepdim=True)
    span = _finite(high - low)
    found = _grid(x, span / 15, (low + high) / 2)
    rest = (found.error > _EXACT * group * span.square())[:, 0].nonzero()[:, 0]
    if len(rest):
        x, span, middle = x[rest], span[rest], (low + high)[rest] / 2
        best = _Grid(*(part[rest] for part in found))
        for steps, kept in _TRIED:
            step = kept * span / steps
            # with fewer than 15 steps, codes at one end or at the other are not used
            shift = (15 - steps) / 2 * step
            for at in (middle,) if steps == 15 else (middle + shift, middle - shift):
                best = _better(best, _grid(x, step, at))
        for part, one in zip(found, best, strict=True):
            part[rest] = one
    nibbles = (found.codes + 8).to(torch.uint8).view(len(values), -1)
    scale, offset = (part.view(len(values), -1) for part in (found.scale, found.offset))
    return nibbles[:, 0::2] | (nibbles[:, 1::2] << 4), scale, offset.bfloat16()


class _Grid(NamedTuple):
    """Codes [n, group] from -8 to 7 and, as [n, 1], their scale, offset and squared error."""

    codes: Tensor
    scale: Tensor
    offset: Tensor
    error: Tensor


def _grid(x: Tensor, scale: Tensor, middle: Tensor) -> _Grid:
    """The codes of groups x [n, group] in steps of `scale` around a middle, in stored numbers.

    Scale and offset are fitted to the codes once more, by least squares.
    """
    scale = torch.where(scale == 0, 1.0, scale)
    codes = ((x - middle) / scale - 0.5).round_().clamp_(-8, 7)
    mean, at = x.mean(dim=1, keepdim=True), codes.mean(dim=1, keepdim=True)
    away = codes - at
    spread = away.square().sum(dim=1, keepdim=True)
    fitted = (away * x).sum(dim=1, keepdim=True) / spread
    scale = _short(torch.where((spread > 0) & (fitted > 0), fitted, scale))
    offset = (mean - at * scale).bfloat16().float()
    error = (codes * scale + offset - x).square_().sum(dim=1, keepdim=True)
    return _Grid(codes, scale, offset, error)


def _better(one: _Grid, other: _Grid) -> _Grid:
    wins = other.error < one.error
    return _Grid(*(torch.where(wins, b, a) for a, b in zip(one, other, strict=True)))


def _short(scale: Tensor) -> Tensor:
    """Scales of 20 significant bits: times a code of four, they are exact in float32."""
    return ((scale.view(torch.int32) + 8) & -16).view(torch.float32)


def _unpack(data: Tensor) -> Tensor:
    """Nibbles [out, in / 2] as float32 [out, in], less 8."""
    return torch.stack((data & 15, data >> 4), dim=2).flatten(1).float() - 8


def _finite(amax: Tensor) -> Tensor:
    if not bool(amax.isfinite().all()):
        raise DataError("a weight holds values that are not finite")
    return amax


def _pieces(tensor: Tensor) -> Sequence[Tensor]:
    return torch.split(tensor, max(1, _PIECE // max(1, tensor.shape[1])))


# torch neither concatenates nor gathers fp8 tensors everywhere: their bytes do as well


def _cat(parts: Sequence[Tensor]) -> Tensor:
    if parts[0].dtype != E4M3:
        return torch.cat(list(parts))
    return torch.cat([part.view(torch.uint8) for part in parts]).view(E4M3)


def _joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    known = [part for part in parts if part is not None]
    return torch.cat(known) if known else None


def _select(data: Tensor, rows: Tensor | slice) -> Tensor:
    if data.dtype != E4M3:
        return data[rows]
    return data.view(torch.uint8)[rows].view(E4M3)
