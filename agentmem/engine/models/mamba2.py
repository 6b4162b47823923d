"""The Mamba-2 mixer: rows and a state in, rows and a new state out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from agentmem.engine.config_hybrid import MambaShape
from agentmem.engine.kernels.base import Kernels
from agentmem.engine.kernels.weights import Weight
from agentmem.engine.models import ssd


@dataclass(frozen=True, slots=True)
class MambaWeights:
    """One mixer. All but the matrices and their biases are float32.

    The input projection gives, in this order, the gate [inner], what the convolution sees
    [channels] and the time steps [heads].
    """

    into: Weight
    into_bias: Tensor | None
    into_scale: Tensor | None
    """Factors on the projection's outputs, in front of its bias, where the model has them."""
    conv: Tensor
    """[kernel, channels], the newest row last."""
    conv_bias: Tensor | None
    dt_bias: Tensor
    decay: Tensor
    """[heads], negative."""
    skip: Tensor
    norm: Tensor | None
    out: Weight
    out_bias: Tensor | None


@dataclass(frozen=True, slots=True)
class MambaState:
    """What one layer knows of s sequences.

    `conv` [s, kernel - 1, channels]: the last inputs of the convolution, oldest first, in the
    activation's dtype. `ssm` [s, heads, head_dim, state], float32.
    """

    conv: Tensor
    ssm: Tensor

    @classmethod
    def zeros(cls, shape: MambaShape, sequences: int, dtype: torch.dtype) -> MambaState:
        """The state in front of the first token."""
        window = torch.zeros(sequences, shape.kernel - 1, shape.channels, dtype=dtype)
        return cls(window, torch.zeros(sequences, shape.heads, shape.head_dim, shape.state))

    @property
    def size_bytes(self) -> int:
        """Of both kinds, all sequences."""
        return self.conv.nbytes + self.ssm.nbytes


def mix(
    x: Tensor,
    starts: Sequence[int],
    shape: MambaShape,
    weights: MambaWeights,
    state: MambaState,
    kernels: Kernels,
) -> tuple[Tensor, MambaState]:
    """x [n, width] to [n, width]; sequence i is rows starts[i] to starts[i + 1], behind its state.

    A sequence may have no rows: its state stays. Nothing is written to.
    """
    sizes = [shape.inner, shape.channels, shape.heads]
    gate, seen, dt = torch.split(_project(x, weights, kernels), sizes, dim=1)
    dt = F.softplus(dt.float() + weights.dt_bias).clamp(*shape.dt_limits)
    y = torch.empty(len(x), shape.inner)
    conv, ssm = torch.empty_like(state.conv), torch.empty_like(state.ssm)
    lengths = [stop - start for start, stop in pairwise(starts)]
    for i, length in enumerate(lengths):
        if length == 0:
            conv[i], ssm[i] = state.conv[i], state.ssm[i]
        elif length > 1:
            rows = slice(starts[i], starts[i + 1])
            window = torch.cat((state.conv[i], seen[rows]))
            conv[i] = window[length:]
            parts = _parts(_convolve(window, weights), shape)
            inner, ssm[i] = ssd.scan(parts[0], dt[rows], weights.decay, *parts[1:], state.ssm[i])
            y[rows] = _skipped(inner, parts[0], weights)
    singles = [i for i, length in enumerate(lengths) if length == 1]
    if singles:
        at, rows_at = _where(singles, lengths, starts)
        windows = torch.cat((state.conv[at], seen[rows_at][:, None]), dim=1)
        conv[at] = windows[:, 1:]
        parts = _parts(_convolve(windows, weights)[:, 0], shape)
        inner, ssm[at] = ssd.step(parts[0], dt[rows_at], weights.decay, *parts[1:], state.ssm[at])
        y[rows_at] = _skipped(inner, parts[0], weights)
    gated = _gated(y, gate.float(), shape, weights.norm).to(x.dtype)
    return kernels.linear(gated, weights.out, weights.out_bias), MambaState(conv, ssm)


def _where(
    singles: list[int], lengths: list[int], starts: Sequence[int]
) -> tuple[slice | Tensor, slice | Tensor]:
    """Sequences of one row, and these rows: slices where nothing else is in the pass."""
    if len(singles) == len(lengths):
        return slice(None), slice(None)
    return torch.tensor(singles), torch.tensor([starts[i] for i in singles])


def _project(x: Tensor, weights: MambaWeights, kernels: Kernels) -> Tensor:
    if weights.into_scale is None:
        return kernels.linear(x, weights.into, weights.into_bias)
    scaled = kernels.linear(x, weights.into).float() * weights.into_scale
    if weights.into_bias is not None:
        scaled += weights.into_bias
    return scaled.to(x.dtype)


def _convolve(window: Tensor, weights: MambaWeights) -> Tensor:
    """Inputs [..., kernel - 1 + n, channels] to silu of their sums, float32 [..., n, channels]."""
    rows = window.float()
    kernel = len(weights.conv)
    length = rows.shape[-2] - kernel + 1
    out = rows[..., :length, :] * weights.conv[0]
    for i in range(1, kernel):
        out += rows[..., i : i + length, :] * weights.conv[i]
    return F.silu(out if weights.conv_bias is None else out + weights.conv_bias)


def _parts(rows: Tensor, shape: MambaShape) -> tuple[Tensor, Tensor, Tensor]:
    """Rows [n, channels] as x [n, heads, head_dim], B and C [n, groups, state]."""
    width = shape.groups * shape.state
    x, b, c = torch.split(rows, [shape.inner, width, width], dim=1)
    groups = (len(rows), shape.groups, shape.state)
    return x.view(len(rows), shape.heads, -1), b.view(groups), c.view(groups)


def _skipped(y: Tensor, x: Tensor, weights: MambaWeights) -> Tensor:
    return (y + x * weights.skip[:, None]).flatten(1)


def _gated(y: Tensor, gate: Tensor, shape: MambaShape, weight: Tensor | None) -> Tensor:
    opened = F.silu(gate)
    if weight is None:
        return y * opened
    if shape.gate_first:
        return _group_norm(y * opened, shape) * weight
    return _group_norm(y, shape) * weight * opened


def _group_norm(y: Tensor, shape: MambaShape) -> Tensor:
    """RMS norm within each group of heads."""
    groups = y.view(len(y), shape.groups, -1)
    return F.rms_norm(groups, groups.shape[-1:], None, shape.norm_eps).flatten(1)
