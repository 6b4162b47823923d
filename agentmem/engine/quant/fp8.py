"""FP8 activations with a static scale: made by a (fused) norm, taken by one linear.

The orders of rounding. "round-first" rounds the normalised row to the activation's dtype before it
quantises, which is what a norm followed by a separate quantisation does: fused and unfused give
the same bytes. "no-round" goes from float32 to e4m3 at once; up to a few per cent of the codes
differ by one step. A reference that casts before it multiplies by the norm's weight (the
transformers order) is neither; `agentmem engine modes` measures the difference.

NaN: a NaN anywhere in a row makes the whole row NaN, every code 0x7f, and so the product. An
infinity is NaN itself and turns the rest of its row to zero. Neither becomes a number.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from agentmem.engine.kernels.base import RoundingOrder
from agentmem.engine.kernels.weights import QUANTISED_VERSION, QuantisedActivation, Weight
from agentmem.engine.quant.formats import to_e4m3

KEY = "e4m3-static-tensor"
DEFAULT_ORDER: RoundingOrder = "round-first"


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / root mean square * weight over the last axis, all in float32, not rounded."""
    return F.rms_norm(x.float(), (x.shape[-1],), weight.float(), eps)


def rms_cast_first(x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """The order of transformers' Llama and Qwen2: rounded to a dtype, then times the weight."""
    plain = F.rms_norm(x.float(), (x.shape[-1],), None, eps)
    return weight.to(dtype) * plain.to(dtype)


def static_quantise(x: Tensor, scale: Tensor) -> QuantisedActivation:
    """e4m3 codes of x times the reciprocal of a scale (float32, one element)."""
    return QuantisedActivation(to_e4m3(x.float() * _reciprocal(scale)), scale, x.dtype)


def norm_quant(
    x: Tensor,
    weight: Tensor,
    eps: float,
    scale: Tensor,
    order: RoundingOrder = DEFAULT_ORDER,
    delta: Tensor | None = None,
) -> QuantisedActivation:
    """RMS norm of x [..., width] and static quantisation; with `delta`, of x + delta.

    The sum is written into x (rounded to its dtype), x is untouched otherwise. "round-first" norms
    the rounded sum, "no-round" the float32 one. `weight` is of x's dtype; the result holds the
    very `scale` given. No rows give no codes. Raises TypeError for another weight dtype.
    """
    if weight.dtype != x.dtype:
        raise TypeError(f"a fused norm of {x.dtype} cannot take a weight of {weight.dtype}")
    values = x
    if delta is not None:
        total = x.float() + delta.float()
        x.copy_(total)
        values = total if order == "no-round" else x
    normed = rms(values, weight, eps)
    if order == "round-first":
        normed = normed.to(x.dtype).float()
    return QuantisedActivation(to_e4m3(normed * _reciprocal(scale)), scale, x.dtype)


def check_known(x: QuantisedActivation, weight: Weight) -> None:
    """TypeError unless the matrix was made to take this kind of activation."""
    if weight.format != "fp8" or weight.input_scale is None:
        raise TypeError(f"a {weight.format} matrix without an input scale takes no {x.key!r}")
    if (x.key, x.version) != (KEY, QUANTISED_VERSION):
        known = f"{KEY!r} version {QUANTISED_VERSION}"
        raise TypeError(f"an activation of {x.key!r} version {x.version} is not {known}")
    if x.scale.numel() != 1:
        raise TypeError(f"a static activation has one scale, not {x.scale.numel()}")


def product(
    x: QuantisedActivation,
    weight: Weight,
    bias: Tensor | None = None,
    multiply: Callable[[Tensor, Tensor], Tensor] = F.linear,
) -> Tensor:
    """x [..., in] times an fp8 matrix: codes summed in float32, then both scales, bias, rounding.

    Comes out in the activation's own dtype, bf16 where it is not known. `multiply` is the float32
    product of x and a transposed matrix. Raises TypeError for a matrix that does not know the
    activation; it is never quantised again.
    """
    check_known(x, weight)
    assert weight.scale is not None
    out = multiply(x.data.float(), weight.data.float())
    out *= x.scale.reshape(1) * weight.scale
    if bias is not None:
        out += bias.float()
    return out.to(x.out_dtype)


def linear(x: Tensor | QuantisedActivation, weight: Weight, bias: Tensor | None = None) -> Tensor:
    """`product` of an fp8 matrix with static activations; a plain x is quantised for it first."""
    if isinstance(x, QuantisedActivation):
        return product(x, weight, bias)
    if weight.input_scale is None:
        raise TypeError("a matrix without an input scale takes no static activation")
    return product(static_quantise(x, weight.input_scale), weight, bias)


def _reciprocal(scale: Tensor) -> Tensor:
    return scale.reshape(1).float().reciprocal()
