"""Watching a model run: the ranges of its activations, and what the rounding orders change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentmem.engine.kernels.torch_backend import TorchKernels
from agentmem.engine.kernels.weights import QuantisedActivation, Weight
from agentmem.engine.kv.layout import KVKind
from agentmem.engine.models.alone import Alone
from agentmem.engine.models.decoder import Decoder, DecoderWeights
from agentmem.engine.quant.activations import linears
from agentmem.engine.quant.calibration import Ranges
from agentmem.engine.quant.formats import E4M3_MAX, to_e4m3
from agentmem.engine.quant.fp8 import norm_quant, rms_cast_first
from agentmem.engine.quant.losses import CHUNK


class Text:
    """One context after another on a decoder, as `losses.perplexity` wants it."""

    def __init__(self, decoder: Decoder, window: int, kind: KVKind | None = None) -> None:
        self._shape = (decoder, window, kind)
        self._alone = Alone(*self._shape)

    def start(self) -> None:
        """See Chunks."""
        self._alone = Alone(*self._shape)

    def logits(self, tokens: Tensor) -> Tensor:
        """See Chunks."""
        return self._alone.run(tokens)


def with_kernels(decoder: Decoder, kernels: TorchKernels) -> Decoder:
    """The same model over other kernels."""
    return Decoder(
        decoder.config,
        decoder.weights,
        kernels,
        dtype=decoder.dtype,
        residual=decoder.residual,
        order=decoder.order,
        notes=decoder.notes,
    )


def ranges(
    decoder: Decoder,
    windows: Sequence[Sequence[int]],
    on_progress: Callable[[int], None] | None = None,
) -> Ranges:
    """Run the windows and keep the largest value of each row that a linear sees."""
    seen = _Ranging(decoder.weights)
    _run(with_kernels(decoder, seen), windows, on_progress)
    return seen.ranges


@dataclass(frozen=True, slots=True)
class OrderGap:
    """How far another order of rounding is from "round-first", over all norms and rows seen."""

    order: str
    differing: float
    """Share of e4m3 codes."""
    steps_max: int
    """Codes apart, at most."""
    relative_rms: float
    """Of the normalised values themselves, before quantisation; 0 where they are the same."""


def order_gaps(decoder: Decoder, windows: Sequence[Sequence[int]]) -> tuple[OrderGap, OrderGap]:
    """ "no-round" and "cast-first" (transformers' own) beside "round-first", on real activations.

    Each norm's scale covers the values that it sees in a pass.
    """
    seen = _Comparing()
    _run(with_kernels(decoder, seen), windows, None)
    return seen.gap("no-round"), seen.gap("cast-first")


def cast_first(decoder: Decoder) -> Decoder:
    """The model with every norm in transformers' order of rounding, nothing fused."""
    return with_kernels(decoder, _CastFirst())


class _Ranging(TorchKernels):
    def __init__(self, weights: DecoderWeights) -> None:
        super().__init__()
        self.ranges = Ranges()
        self._names = {id(matrix): name for name, matrix in linears(weights)}

    def linear(
        self, x: Tensor | QuantisedActivation, weight: Weight, bias: Tensor | None = None
    ) -> Tensor:
        name = self._names.get(id(weight))
        if name is not None and isinstance(x, Tensor):
            self.ranges.add(name, x)
        return super().linear(x, weight, bias)


class _CastFirst(TorchKernels):
    def norm(self, x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        return rms_cast_first(x, weight, eps, dtype)

    def add_norm(
        self, x: Tensor, delta: Tensor, weight: Tensor, eps: float, dtype: torch.dtype
    ) -> Tensor:
        x += delta
        return rms_cast_first(x, weight, eps, dtype)


class _Comparing(TorchKernels):
    """Computes every norm in all orders; the model itself goes on in its own."""

    def __init__(self) -> None:
        super().__init__()
        self._codes = {"no-round": [0, 0, 0], "cast-first": [0, 0, 0]}  # differing, all, steps
        self._errors = {"no-round": [0.0, 0.0], "cast-first": [0.0, 0.0]}

    def norm(self, x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        out = super().norm(x, weight, eps, dtype)
        self._compare(x.to(dtype), weight.to(dtype), eps)
        return out

    def add_norm(
        self, x: Tensor, delta: Tensor, weight: Tensor, eps: float, dtype: torch.dtype
    ) -> Tensor:
        out = super().add_norm(x, delta, weight, eps, dtype)
        self._compare(x.to(dtype), weight.to(dtype), eps)
        return out

    def gap(self, order: str) -> OrderGap:
        differing, count, steps = self._codes[order]
        error, size = self._errors[order]
        return OrderGap(order, differing / max(1, count), steps, (error / max(size, 1e-30)) ** 0.5)

    def _compare(self, x: Tensor, weight: Tensor, eps: float) -> None:
        plain = super().norm(x, weight.float(), eps, x.dtype)
        scale = plain.float().abs().amax().reshape(1) / E4M3_MAX
        ours = norm_quant(x, weight, eps, scale).data
        other = norm_quant(x, weight, eps, scale, "no-round").data
        self._count("no-round", ours, other)
        cast = rms_cast_first(x, weight, eps, x.dtype)
        self._count("cast-first", ours, to_e4m3(cast.float() * scale.reciprocal()))
        self._errors["cast-first"][0] += float((cast.float() - plain.float()).square().sum())
        self._errors["cast-first"][1] += float(plain.float().square().sum())

    def _count(self, order: str, ours: Tensor, other: Tensor) -> None:
        apart = (_ordinal(ours) - _ordinal(other)).abs()
        tally = self._codes[order]
        tally[0] += int((apart > 0).sum())
        tally[1] += apart.numel()
        tally[2] = max(tally[2], int(apart.max()))


def _ordinal(codes: Tensor) -> Tensor:
    """e4m3 codes as whole numbers in the order of their values."""
    raw = codes.view(torch.uint8).int()
    return torch.where(raw >= 128, 128 - raw, raw)


def _run(
    decoder: Decoder,
    windows: Sequence[Sequence[int]],
    on_progress: Callable[[int], None] | None,
) -> None:
    for window in windows:
        alone = Alone(decoder, len(window))
        for rows in torch.split(torch.tensor(window), CHUNK):
            alone.run(rows)
            if on_progress is not None:
                on_progress(len(rows))
