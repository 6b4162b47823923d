"""What native code is given of tensors: addresses, types, sizes."""

from __future__ import annotations

import torch
from torch import Tensor

from agentmem.engine.kernels.weights import Weight
from agentmem.engine.kv.layout import KVPages

TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float8_e4m3fn: 2, torch.int8: 3}
FORMATS = {"fp32": 0, "bf16": 1, "fp8": 2, "int8": 3, "int4": 4}


def whole(x: Tensor) -> Tensor:
    """The same values in order."""
    return x if x.is_contiguous() else x.contiguous()


def contiguous(x: Tensor) -> bool:
    """Whether the values lie in order, in memory."""
    return x.is_contiguous() and x.device.type == "cpu"


def plain(*tensors: Tensor | None) -> bool:
    """True for tensors in memory, of the two types that rows come in."""
    return all(
        t is None or (t.dtype in (torch.float32, torch.bfloat16) and t.device.type == "cpu")
        for t in tensors
    )


def optional(x: Tensor | None) -> tuple[int, int]:
    """Address and type of rows that may be absent."""
    return (0, 0) if x is None else (x.data_ptr(), TYPES[x.dtype])


def matrix(weight: Weight) -> tuple[int, int, int, int, int, int, int]:
    """Format, data, scales, sizes, group and offsets of a matrix, as native code takes it."""
    return (
        FORMATS[weight.format],
        weight.data.data_ptr(),
        0 if weight.scale is None else weight.scale.data_ptr(),
        weight.rows,
        weight.columns,
        weight.group or 0,
        0 if weight.offset is None else weight.offset.data_ptr(),
    )


def page_numbers(pages: KVPages, layer: int) -> tuple[int, int, int, int, int, int, int, int]:
    """Type, keys, values, their scales, and sizes of one layer\'s pages."""
    data = pages.data
    _, _, blocks, kv_heads, size, dim = data.shape
    step = blocks * kv_heads * size
    keys = data.data_ptr() + layer * 2 * step * dim * data.element_size()
    values = keys + step * dim * data.element_size()
    scales = 0 if pages.scales is None else pages.scales.data_ptr() + layer * 2 * step * 4
    after = scales + step * 4 if scales else 0
    return TYPES[data.dtype], keys, values, scales, after, size, kv_heads, dim
