"""The Mamba-2 mixer: rows and a state in, rows and a new state out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from agentmem.engine.config_hybrid import MambaShape
from agentmem.engine.kernels.base import Kernels
from agentmem.engine.kernels.weights import Weight
from agentmem.engine.models import ssd
from agentmem.engine.state.layout import StateKind, recurrent, window

NO_GUESSES: Mapping[int, int] = MappingProxyType({})


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
        conv = torch.zeros(sequences, shape.kernel - 1, shape.channels, dtype=dtype)
        return cls(conv, torch.zeros(sequences, shape.heads, shape.head_dim, shape.state))

    @staticmethod
    def kinds(
        shape: MambaShape, dtype: torch.dtype, guesses: int = 0
    ) -> tuple[StateKind, StateKind]:
        """`conv` and `ssm` of one sequence as a store keeps them, with room for guesses."""
        seen = window(shape.kernel, shape.channels, dtype, drafts=guesses)
        return seen, recurrent(shape.heads, shape.head_dim, shape.state)

    @property
    def size_bytes(self) -> int:
        """Of both kinds, all sequences."""
        return self.conv.nbytes + self.ssm.nbytes


@dataclass(frozen=True, slots=True)
class MambaTrail:
    """The states of one sequence behind its last rows, g of which are guesses.

    `conv` [kernel - 1 + g, channels]: behind i guesses, the window begins at row i. `ssm`
    [1 + g, heads, head_dim, state]: row i is the state behind i guesses.
    """

    conv: Tensor
    ssm: Tensor

    def behind(self, guesses: int) -> MambaState:
        """The state of the sequence with so many of its guesses kept."""
        width = len(self.conv) - len(self.ssm) + 1
        kept = slice(guesses, guesses + 1)
        return MambaState(self.conv[None, guesses : guesses + width], self.ssm[kept])

    @property
    def size_bytes(self) -> int:
        """Of both kinds."""
        return self.conv.nbytes + self.ssm.nbytes


class Mixed(NamedTuple):
    """What a pass gives: rows [n, width], the states behind all of them, and trails on request."""

    rows: Tensor
    state: MambaState
    trails: dict[int, MambaTrail]
    """By sequence; of those with guesses."""


def mix(
    x: Tensor,
    starts: Sequence[int],
    shape: MambaShape,
    weights: MambaWeights,
    state: MambaState,
    kernels: Kernels,
    guesses: Mapping[int, int] = NO_GUESSES,
) -> Mixed:
    """x [n, width] to [n, width]; sequence i is rows starts[i] to starts[i + 1], behind its state.

    A sequence may have no rows: its state stays. The last `guesses[i]` rows of sequence i, fewer
    than it has, may be taken back. Nothing is written to.
    """
    sizes = [shape.inner, shape.channels, shape.heads]
    gate, seen, dt = torch.split(_project(x, weights, kernels), sizes, dim=1)
    dt = F.softplus(dt.float() + weights.dt_bias).clamp(*shape.dt_limits)
    y = torch.empty(len(x), shape.inner)
    conv, ssm = torch.empty_like(state.conv), torch.empty_like(state.ssm)
    lengths = [stop - start for start, stop in pairwise(starts)]
    trails: dict[int, MambaTrail] = {}
    for i, length in enumerate(lengths):
        if length == 0:
            conv[i], ssm[i] = state.conv[i], state.ssm[i]
        elif length > 1:
            rows = slice(starts[i], starts[i + 1])
            inputs = torch.cat((state.conv[i], seen[rows]))
            conv[i] = inputs[length:]
            parts = _parts(_convolve(inputs, weights), shape)
            sure = length - guesses.get(i, 0)
            inner, states = _scanned(parts, dt[rows], weights.decay, state.ssm[i], sure)
            y[rows] = _skipped(inner, parts[0], weights)
            ssm[i] = states[-1]
            if sure < length:
                trails[i] = MambaTrail(inputs[sure:], states)
    singles = [i for i, length in enumerate(lengths) if length == 1]
    if singles:
        at, rows_at = _where(singles, lengths, starts)
        inputs = torch.cat((state.conv[at], seen[rows_at][:, None]), dim=1)
        conv[at] = inputs[:, 1:]
        parts = _parts(_convolve(inputs, weights)[:, 0], shape)
        inner, ssm[at] = ssd.step(parts[0], dt[rows_at], weights.decay, *parts[1:], state.ssm[at])
        y[rows_at] = _skipped(inner, parts[0], weights)
    gated = _gated(y, gate.float(), shape, weights.norm).to(x.dtype)
    out = kernels.linear(gated, weights.out, weights.out_bias)
    return Mixed(out, MambaState(conv, ssm), trails)


def _scanned(
    parts: tuple[Tensor, Tensor, Tensor], dt: Tensor, decay: Tensor, state: Tensor, sure: int
) -> tuple[Tensor, Tensor]:
    """y of a sequence's rows, and the states behind row `sure` and every one after it."""
    x, b, c = (part[:sure] for part in parts)
    y, state = ssd.scan(x, dt[:sure], decay, b, c, state)
    if sure == len(dt):
        return y, state[None]
    x, b, c = (part[sure:] for part in parts)
    more, states = ssd.each(x, dt[sure:], decay, b, c, state)
    return torch.cat((y, more)), torch.cat((state[None], states))


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


def _convolve(inputs: Tensor, weights: MambaWeights) -> Tensor:
    """Inputs [..., kernel - 1 + n, channels] to silu of their sums, float32 [..., n, channels]."""
    rows = inputs.float()
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
