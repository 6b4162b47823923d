"""Static FP8 activations of a loaded model: its scales, and which norms are fused.

The rule. Where a model's norms can be fused at all, the residual stream and the norms' weights are
of the activation's dtype, whether or not this run fuses them: so a fallback computes the same
numbers. Weights that this dtype cannot hold exactly stay float32, and their norms unfused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from agentmem.engine.config import DecoderConfig
from agentmem.engine.kernels.weights import Weight
from agentmem.engine.models.decoder import DecoderWeights, LayerWeights
from agentmem.engine.quant.calibration import Calibration, missing
from agentmem.engine.quant.eligible import (
    FusionPlan,
    LinearSite,
    NormSite,
    Runtime,
    activation_norm,
    plan,
)
from agentmem.errors import DataError


class Activated(NamedTuple):
    """A model ready for its mode: what to run, the residual stream's dtype, one-line notes."""

    weights: DecoderWeights
    residual: torch.dtype
    notes: tuple[str, ...]


def activate(
    config: DecoderConfig,
    weights: DecoderWeights,
    dtype: torch.dtype,
    calibration: Calibration | None = None,
    runtime: Runtime | None = None,
) -> Activated:
    """Put a calibration's scales on fp8 matrices, and mark the norms that are fused.

    Without a calibration the checkpoint's own scales serve, where it has them. Models whose
    matrices take no static activations come back as they are. DataError for a calibration that
    lacks a linear of the model.
    """
    if calibration is not None:
        if lacking := missing(calibration, (name for name, _ in linears(weights))):
            raise DataError(f"the calibration knows no {lacking[0]!r}, which the model has")
        weights = _scaled(weights, calibration)
    if all(matrix.input_scale is None for _, matrix in linears(weights)):
        return Activated(weights, torch.float32, ())
    sites = list(_sites(config, weights, dtype))
    made = plan(sites, runtime)
    layers = tuple(_marked(i, layer, made, dtype) for i, layer in enumerate(weights.layers))
    residual = dtype if plan(sites).fused else torch.float32
    return Activated(replace(weights, layers=layers), residual, made.notes)


def linears(weights: DecoderWeights) -> Iterator[tuple[str, Weight]]:
    """Every matrix that takes activations, with its name; the head's stay in their own dtype."""
    for i, layer in enumerate(weights.layers):
        for part in PARTS:
            yield f"blk.{i}.{part}", getattr(layer, part)


PARTS = ("qkv", "out", "gate_up", "down")
_NORMS = (("attn_norm", "qkv"), ("ffn_norm", "gate_up"))


def _scaled(weights: DecoderWeights, calibration: Calibration) -> DecoderWeights:
    layers = []
    for i, layer in enumerate(weights.layers):
        changed: dict[str, Any] = {}
        for part in PARTS:
            matrix: Weight = getattr(layer, part)
            if matrix.format == "fp8":
                scale = calibration.scale(f"blk.{i}.{part}")
                changed[part] = replace(matrix, input_scale=scale)
        layers.append(replace(layer, **changed))
    return replace(weights, layers=tuple(layers))


def _sites(
    config: DecoderConfig, weights: DecoderWeights, dtype: torch.dtype
) -> Iterator[tuple[str, NormSite, LinearSite | None]]:
    for i, layer in enumerate(weights.layers):
        for norm, part in _NORMS:
            held = dtype if _exact(getattr(layer, norm), dtype) else torch.float32
            site = activation_norm(config, dtype, held)
            yield f"blk.{i}.{norm}", site, LinearSite.of(getattr(layer, part))


def _marked(i: int, layer: LayerWeights, made: FusionPlan, dtype: torch.dtype) -> LayerWeights:
    """Norms as the plan says; a fused one is handed in the activation's dtype."""
    fuse = {norm: f"blk.{i}.{norm}" in made.fused for norm, _ in _NORMS}
    return replace(
        layer,
        attn_norm=layer.attn_norm.to(dtype) if fuse["attn_norm"] else layer.attn_norm,
        ffn_norm=layer.ffn_norm.to(dtype) if fuse["ffn_norm"] else layer.ffn_norm,
        fuse_attn_norm=fuse["attn_norm"],
        fuse_ffn_norm=fuse["ffn_norm"],
    )


def _exact(weight: Tensor, dtype: torch.dtype) -> bool:
    return torch.equal(weight.to(dtype).float(), weight.float())
