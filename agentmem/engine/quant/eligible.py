"""Which norms may be fused with the FP8 quantisation of the linear behind them, and why not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from agentmem.engine.config import DecoderConfig
from agentmem.engine.kernels.weights import Weight

NormKind = Literal["rms", "gemma-rms", "layer"]
ScaleLayout = Literal["tensor", "row", "block", "mx", "packed", "none"]


class Verdict(NamedTuple):
    """`reason` says why not, or "" where it is fused."""

    fuse: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NormSite:
    """A norm in a model. `consumers` counts what reads its output."""

    kind: NormKind
    weight_dtype: torch.dtype
    activation_dtype: torch.dtype
    residual_dtype: torch.dtype
    elements: int | None = None
    """Of the activation, where known: an empty one goes through unfused."""
    variance_size: int | None = None
    """Elements that the variance is taken over, where not all of the row."""
    cast_first: bool = False
    """True where the unfused path itself rounds before it multiplies by the weight."""
    consumers: int = 1


@dataclass(frozen=True, slots=True)
class LinearSite:
    """The linear behind a norm: its numbers, how they are scaled, and its activation's scale."""

    format: str
    layout: ScaleLayout
    static: bool
    input_scale: Tensor | None

    @classmethod
    def of(cls, weight: Weight) -> LinearSite:
        """What a loaded matrix is."""
        layout: ScaleLayout = "row" if weight.scale is not None else "none"
        return cls(weight.format, layout, weight.input_scale is not None, weight.input_scale)


@dataclass(frozen=True, slots=True)
class Runtime:
    """What the engine runs with."""

    kernel: bool = True
    """The backend has the fused kernel."""
    invariant: bool = False
    allow_cast_first: bool = False
    """Asked for explicitly: cast-first norms are fused in our order, which changes the output."""


def verdict(norm: NormSite, linear: LinearSite | None, runtime: Runtime | None = None) -> Verdict:
    """Fuse, or the first reason not to. Pure: nothing is read but the arguments."""
    for reason in (*_of_norm(norm, runtime or Runtime()), *_of_linear(linear)):
        if reason:
            return Verdict(False, reason)
    return Verdict(True)


def _of_norm(norm: NormSite, runtime: Runtime) -> Iterable[str]:
    if norm.kind != "rms":
        yield f"a {norm.kind} norm is no plain RMS norm"
    if norm.elements == 0:
        yield "the activation is empty"
    if norm.variance_size is not None:
        yield "the variance is taken over a part of the row"
    if runtime.invariant:
        yield "batch-invariant mode runs the plain kernels"
    if norm.cast_first and not runtime.allow_cast_first:
        yield "the norm rounds before it multiplies by its weight"
    if not runtime.kernel:
        yield "the backend has no fused kernel"
    if norm.activation_dtype not in (torch.bfloat16, torch.float16):
        yield f"activations are {_name(norm.activation_dtype)}"
    if norm.weight_dtype != norm.activation_dtype:
        ours, theirs = _name(norm.weight_dtype), _name(norm.activation_dtype)
        yield f"the norm's weight is {ours}, the activation {theirs}"
    if norm.residual_dtype != norm.activation_dtype:
        yield f"the residual stream is {_name(norm.residual_dtype)}"
    if norm.consumers != 1:
        yield f"the norm's output has {norm.consumers} readers"


def _of_linear(linear: LinearSite | None) -> Iterable[str]:
    if linear is None:
        yield "no linear follows"
        return
    if linear.format != "fp8":
        yield f"the linear is {linear.format}"
    if linear.layout not in ("tensor", "row"):
        yield f"the linear's scales are by {linear.layout}"
    if not linear.static:
        yield "activations have no static scale (agentmem engine calibrate makes one)"
    elif linear.input_scale is None:
        yield "the static scale is missing"
    elif linear.input_scale.numel() != 1:
        yield f"the static scale has {linear.input_scale.numel()} elements"


@dataclass(frozen=True, slots=True)
class FusionPlan:
    """Which norms of a model are fused, by name, and one line a reason for the rest."""

    fused: frozenset[str] = frozenset()
    notes: tuple[str, ...] = field(default=())


def activation_norm(config: DecoderConfig, dtype: torch.dtype, weight: torch.dtype) -> NormSite:
    """The norm in front of a projection of this model, residual stream and output in `dtype`."""
    return NormSite(_kind(config.arch), weight, dtype, dtype)


def _kind(arch: str) -> NormKind:
    return "gemma-rms" if arch.startswith("gemma") else "rms"


def by_architecture() -> Iterator[tuple[str, Verdict]]:
    """Whether a calibrated model of an architecture fuses its norms, all else as it should be."""
    linear = LinearSite("fp8", "row", True, torch.ones(1))
    for arch in ("llama", "qwen2", "gemma3"):
        norm = NormSite(_kind(arch), torch.bfloat16, torch.bfloat16, torch.bfloat16)
        yield arch, verdict(norm, linear)


def plan(
    sites: Iterable[tuple[str, NormSite, LinearSite | None]], runtime: Runtime | None = None
) -> FusionPlan:
    """Judge (name, norm, linear) one by one; norms that fall back for one reason share a note."""
    fused: list[str] = []
    fallen: dict[str, int] = {}
    for name, norm, linear in sites:
        found = verdict(norm, linear, runtime)
        if found.fuse:
            fused.append(name)
        else:
            fallen[found.reason] = fallen.get(found.reason, 0) + 1
    total = len(fused) + sum(fallen.values())
    notes = [
        f"{count} of {total} norms are not fused with FP8 quantisation: {reason}"
        for reason, count in fallen.items()
    ]
    return FusionPlan(frozenset(fused), tuple(notes))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
