"""Launches the norms and the gate."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from agentmem.engine.config import Activation
from agentmem.engine.gpu.devices import converts_e4m3, require_e4m3
from agentmem.engine.gpu.kernels import norms, pointwise
from agentmem.engine.kernels.base import RoundingOrder
from agentmem.engine.kernels.weights import QuantisedActivation

DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
_FLAT = 1024
_WIDEST = 65536


def norm(x: Tensor, delta: Tensor | None, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """Norm of x [..., width], after adding delta to it in place."""
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    if x.numel():
        rows, added, width = _rows(x), None if delta is None else _rows(delta), x.shape[-1]
        block = _block(width)
        norms.norm_rows[(len(rows),)](
            rows, added, weight, out, *_strides(rows, added), width, eps,
            BLOCK=block, num_warps=warps_for(block),
        )  # fmt: skip
        if delta is not None:
            _give_back(x, rows)
    return out


def norm_quant(
    x: Tensor,
    delta: Tensor | None,
    weight: Tensor,
    eps: float,
    scale: Tensor,
    order: RoundingOrder,
) -> QuantisedActivation:
    """`norm` and static e4m3 quantisation by `scale` in one pass over memory.

    The contract of `quant.fp8.norm_quant`: TypeError for a weight that is not of x's dtype.
    Raises EngineError on a device without e4m3.
    """
    if weight.dtype != x.dtype:
        raise TypeError(f"a fused norm of {x.dtype} cannot take a weight of {weight.dtype}")
    require_e4m3(x.device)
    codes = torch.empty(x.shape, dtype=torch.uint8, device=x.device)
    if x.numel():
        rows, added, width = _rows(x), None if delta is None else _rows(delta), x.shape[-1]
        block = _block(width)
        norms.norm_quant_rows[(len(rows),)](
            rows, added, weight, codes, scale, *_strides(rows, added), width, eps,
            ROUND=order == "round-first", DIRECT=converts_e4m3(x.device),
            BLOCK=block, num_warps=warps_for(block),
        )  # fmt: skip
        if delta is not None:
            _give_back(x, rows)
    return QuantisedActivation(codes.view(torch.float8_e4m3fn), scale, x.dtype)


def quant(x: Tensor, scale: Tensor) -> QuantisedActivation:
    """Static e4m3 quantisation alone, x contiguous of any shape."""
    require_e4m3(x.device)
    codes = torch.empty(x.shape, dtype=torch.uint8, device=x.device)
    if x.numel():
        grid = (triton.cdiv(x.numel(), _FLAT),)
        norms.quant_all[grid](
            x, codes, scale, x.numel(), DIRECT=converts_e4m3(x.device), BLOCK=_FLAT
        )
    return QuantisedActivation(codes.view(torch.float8_e4m3fn), scale, x.dtype)


def gate(both: Tensor, activation: Activation) -> Tensor:
    """act(first half) * second half of [n, 2 * width]: [n, width]."""
    width = both.shape[1] // 2
    out = torch.empty((len(both), width), dtype=both.dtype, device=both.device)
    if out.numel():
        grid = (len(both), triton.cdiv(width, _FLAT))
        pointwise.gate_rows[grid](both, out, width, SILU=activation == "silu", BLOCK=_FLAT)
    return out


def warps_for(block: int) -> int:
    """Warps of a program that holds a row of this many elements."""
    return min(16, max(1, block // 512))


def _block(width: int) -> int:
    if width > _WIDEST:
        raise ValueError(f"a norm of {width} elements is wider than {_WIDEST}")
    return max(16, 1 << (width - 1).bit_length())


def _rows(x: Tensor) -> Tensor:
    """x as rows whose elements are neighbours: a view where that can be, else a copy."""
    if x.dim() == 2 and x.stride(1) == 1:
        return x
    return x.contiguous().view(-1, x.shape[-1])


def _give_back(x: Tensor, rows: Tensor) -> None:
    """The stream is added to in place, also where the kernel worked on a copy."""
    if rows.data_ptr() != x.data_ptr():
        x.copy_(rows.view(x.shape))


def _strides(x: Tensor, delta: Tensor | None) -> tuple[int, int]:
    return x.stride(0), 0 if delta is None else delta.stride(0)
