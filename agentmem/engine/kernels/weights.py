"""Matrices and activations as kernels take them: numbers, their scales, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

WeightFormat = Literal["fp32", "bf16", "fp8", "int8", "int4"]
QUANTISED_VERSION = 1


@dataclass(frozen=True, slots=True)
class Weight:
    """A matrix [out, in]. Value = data * scale, plus an offset in int4.

    fp32, bf16: `data` is the matrix, no scales. fp8 (e4m3fn), int8: `scale` float32 [out], one a
    row. int4: `data` uint8 [out, in / 2], low nibble first, `scale` float32 and `offset` bf16
    [out, in / group], value (nibble - 8) * scale + offset; no offset is zero everywhere.
    `input_scale` (float32, one element) makes an fp8 matrix take static fp8 activations. `packed`
    is a backend's own copy in the order it likes, or None.
    """

    format: WeightFormat
    data: Tensor
    scale: Tensor | None = None
    group: int | None = None
    input_scale: Tensor | None = None
    packed: object | None = None
    offset: Tensor | None = None

    @property
    def rows(self) -> int:
        """Outputs."""
        return self.data.shape[0]

    @property
    def columns(self) -> int:
        """Inputs."""
        return self.data.shape[1] * (2 if self.format == "int4" else 1)

    @property
    def size_bytes(self) -> int:
        """Bytes that a product reads."""
        parts = (self.data, self.scale, self.offset)
        return sum(part.nbytes for part in parts if part is not None)


@dataclass(frozen=True, slots=True)
class QuantisedActivation:
    """What a fused norm gives and only a linear of the same key takes.

    `data` float8_e4m3fn, shape of the activation; value = data * scale. `scale` is the very object
    that the consumer was built with. `orig_dtype` is the activation's own dtype, where its maker
    said; NaN is propagated (code 0x7f), never turned into a number.
    """

    data: Tensor
    scale: Tensor
    orig_dtype: torch.dtype | None
    key: str = "e4m3-static-tensor"
    version: int = QUANTISED_VERSION

    @property
    def out_dtype(self) -> torch.dtype:
        """What the product comes out in."""
        return self.orig_dtype or torch.bfloat16
