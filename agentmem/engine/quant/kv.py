"""Keys and values in 8 bits, one scale a row: the reference that kernels are held to."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Loss:
    """What a round trip loses: largest and root-mean-square error over the rows' own sizes."""

    relative_max: float
    relative_rms: float
    cosine_min: float


def quantise_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """int8 [..., dim] and float32 scales [...]: largest value / 127, 1 for a row of zeros.

    NaN or infinity in a row makes its scale NaN, and so all of the row.
    """
    values = rows.float()
    amax = values.abs().amax(dim=-1)
    scale = torch.where(amax == 0, 1.0, amax / 127)
    broken = ~amax.isfinite()
    codes = (values / scale[..., None]).round().clamp(-127, 127)
    codes = torch.where(broken[..., None], 1.0, codes)
    return codes.to(torch.int8), torch.where(broken, torch.nan, scale)


def dequantise_rows(data: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows [..., dim] in a dtype: data * scale in float32, rounded once."""
    return (data.float() * scale[..., None]).to(dtype)


def loss(rows: Tensor) -> Loss:
    """What these rows lose by a round trip; rows of zeros do not count."""
    flat = rows.float().flatten(0, -2)
    flat = flat[flat.abs().amax(dim=1) > 0]
    if len(flat) == 0:
        return Loss(0.0, 0.0, 1.0)
    back = dequantise_rows(*quantise_rows(flat), torch.float32)
    error = (back - flat).square().sum(dim=1).sqrt() / flat.square().sum(dim=1).sqrt()
    cosine = torch.nn.functional.cosine_similarity(back, flat, dim=1)
    return Loss(float(error.max()), float(error.square().mean().sqrt()), float(cosine.min()))
