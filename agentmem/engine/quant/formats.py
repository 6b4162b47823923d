"""Matrices in fewer bits and back; fused matrices joined and reordered without touching a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from agentmem.engine.kernels.weights import Weight, WeightFormat
from agentmem.errors import DataError

E4M3 = torch.float8_e4m3fn
E4M3_MAX = 448.0
INT4_GROUPS = (32, 64)
_PIECE = 1 << 22
"""Elements worked on at once: bounds the float32 copies beside a large embedding."""
_SHRINK = (1.0, 0.95, 0.9, 0.85, 0.8)
"""Scales tried for a group of 4-bit numbers, as parts of the one that clips nothing."""


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
            values = _unpack(weight.data[rows]).view(*scale.shape, -1)
            out[rows] = (values * scale[..., None]).flatten(1)
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
    kinds = {(p.format, p.group, p.columns) for p in parts}
    if len(kinds) > 1:
        raise DataError("fused matrices must have one format and one width")
    inputs = [p.input_scale for p in parts]
    known = [scale.reshape(1) for scale in inputs if scale is not None]
    return Weight(
        first.format,
        _cat([p.data for p in parts]),
        None if first.scale is None else torch.cat([p.scale for p in parts if p.scale is not None]),
        first.group,
        torch.cat(known).amax(0, keepdim=True) if len(known) == len(inputs) else None,
    )


def reorder(weight: Weight, rows: Tensor) -> Weight:
    """The matrix with its rows in another order: row i is `rows[i]` of the given one."""
    return replace(
        weight,
        data=_select(weight.data, rows),
        scale=None if weight.scale is None else weight.scale[rows],
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
    data, scale = (torch.cat(part) for part in zip(*pieces, strict=True))
    return Weight("int4", data, scale, group)


def _grouped(values: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Nibbles and scales: the largest value of a group sits at -8, the side with one step more.

    Of a few smaller scales that clip it, the one with the smallest squared error is taken.
    """
    x = values.reshape(len(values), -1, group)
    _finite(x.abs().amax(dim=2))
    extreme = x.gather(2, x.abs().argmax(dim=2, keepdim=True))
    whole = torch.where(extreme == 0, 1.0, extreme / -8)
    best = torch.full_like(whole, torch.inf)
    scale, codes = whole.clone(), torch.zeros_like(x)
    for part in _SHRINK:
        tried = whole * part
        steps = (x / tried).round().clamp(-8, 7)
        error = (steps * tried - x).square().sum(dim=2, keepdim=True)
        better = error < best
        best = torch.where(better, error, best)
        scale = torch.where(better, tried, scale)
        codes = torch.where(better, steps, codes)
    nibbles = (codes + 8).to(torch.uint8).flatten(1)
    return nibbles[:, 0::2] | (nibbles[:, 1::2] << 4), scale[..., 0].contiguous()


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


def _select(data: Tensor, rows: Tensor) -> Tensor:
    if data.dtype != E4M3:
        return data[rows]
    return data.view(torch.uint8)[rows].view(E4M3)
