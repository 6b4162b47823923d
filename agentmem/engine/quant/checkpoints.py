"""FP8 checkpoints in hub folders: native (`quant_method: fp8`) and compressed-tensors W8A8.

Weights are e4m3fn [out, in] with one scale a tensor or a row, or one a tile (`weight_scale_inv`);
value = code * scale. Tiled matrices are loadable by dequantising; others keep their codes. Static
checkpoints carry `input_scale`, one a matrix; the largest of a fused projection serves its norm and
its product (see `formats.join`). Where activations are quantised dynamically upstream, ours stay
in their own dtype.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from agentmem.engine.kernels.weights import Weight
from agentmem.engine.quant.formats import E4M3
from agentmem.errors import DataError

SIDE = (".weight_scale", ".weight_scale_inv", ".input_scale")
"""What stands beside a matrix."""
IGNORED = (".k_scale", ".v_scale", ".q_scale", ".output_scale", ".kv_scale", ".prob_output_scale")
"""Scales for caches of other engines; ours finds its own."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """How a checkpoint says its linears are stored. `static` is of the activations."""

    layout: Literal["fp8", "compressed-tensors"]
    static: bool
    tile: tuple[int, int] | None = None
    """Rows and columns that share a scale, where it is one a tile."""


def scheme_of(folder: Path) -> Scheme | None:
    """The scheme in config.json, None for a plain checkpoint; DataError for one not known."""
    try:
        raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {folder / 'config.json'}: {error}") from error
    text = raw.get("text_config") or {}
    given: dict[str, Any] | None = (
        raw.get("quantization_config")
        or text.get("quantization_config")
        or raw.get("compression_config")
    )
    if not given:
        return None
    method = given.get("quant_method")
    try:
        if method == "fp8":
            return _native(given)
        if method == "compressed-tensors":
            return _compressed(given)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{folder} describes its {method} scheme badly: {error!r}") from error
    raise DataError(f"{folder} is quantised by {method!r}; known are fp8 and compressed-tensors")


def is_coded(tensor: Tensor) -> bool:
    """True for what is stored in codes of one byte and means nothing without its scales."""
    return tensor.element_size() == 1


def read(
    module: str, tensors: Mapping[str, Callable[[], Tensor]], scheme: Scheme
) -> Weight | Tensor:
    """The matrix `module`.weight of a checkpoint, which is stored in fp8.

    A Weight keeps codes and scales as they are; a tiled matrix comes as a float32 Tensor. Raises
    DataError for a missing, impossible or unknown scale.
    """
    name = module + ".weight"
    data = tensors[name]()
    if data.dtype != E4M3:
        raise DataError(f"{name} is {data.dtype}; of fp8, only e4m3fn is known")
    scale, inverse = (_side(module + end, tensors) for end in SIDE[:2])
    if inverse is not None or scheme.tile is not None:
        return _untile(name, data, scale if inverse is None else inverse, scheme.tile)
    if scale is None:
        raise DataError(f"{name} is fp8 and has no scale beside it")
    given = _side(module + SIDE[2], tensors) if scheme.static else None
    if scheme.static and given is None:
        raise DataError(f"{module} has no input_scale, yet the checkpoint says static activations")
    if given is not None and given.numel() != 1:
        raise DataError(f"{module}.input_scale has {given.numel()} elements, not one")
    if scale.numel() not in (1, len(data)):
        raise DataError(f"{name} has {scale.numel()} scales for {len(data)} rows")
    rows = scale.reshape(-1).expand(len(data)).contiguous()
    return Weight("fp8", data, rows, input_scale=None if given is None else given.reshape(1))


def _native(given: dict[str, Any]) -> Scheme:
    tile = given.get("weight_block_size")
    activation = given.get("activation_scheme", "dynamic")
    if activation not in ("static", "dynamic"):
        raise DataError(f"activation scheme {activation!r} is not known")
    return Scheme(
        "fp8",
        activation == "static" and not tile,
        (int(tile[0]), int(tile[1])) if tile else None,
    )


def _compressed(given: dict[str, Any]) -> Scheme:
    groups = list(given["config_groups"].values())
    if len(groups) != 1:
        raise DataError(f"{len(groups)} groups of quantisation; only one is known")
    weights, inputs = groups[0]["weights"], groups[0].get("input_activations")
    if (weights.get("num_bits"), weights.get("type")) != (8, "float"):
        kind = f"{weights.get('num_bits')}-bit {weights.get('type')}"
        raise DataError(f"{kind} weights of compressed-tensors are not known, only 8-bit float")
    strategy = weights.get("strategy")
    if strategy not in ("tensor", "channel", "block"):
        raise DataError(f"weight strategy {strategy!r} is not known")
    tile = weights.get("block_structure") if strategy == "block" else None
    static = inputs is not None and not inputs.get("dynamic", False)
    if static and inputs.get("strategy", "tensor") != "tensor":
        raise DataError(f"static activations by {inputs['strategy']!r} are not known")
    return Scheme(
        "compressed-tensors",
        static and strategy != "block",
        (int(tile[0]), int(tile[1])) if tile else None,
    )


def _side(name: str, tensors: Mapping[str, Callable[[], Tensor]]) -> Tensor | None:
    if name not in tensors:
        return None
    scale = tensors[name]().float()
    if not bool((scale.isfinite() & (scale > 0)).all()):
        raise DataError(f"{name} holds values that are no scales")
    return scale


def _untile(name: str, data: Tensor, scale: Tensor | None, tile: tuple[int, int] | None) -> Tensor:
    """float32 values of a matrix with one scale a tile, the last tiles cut off at the edges."""
    if scale is None or tile is None:
        raise DataError(f"{name} lacks its scales or the size of the tiles that they are for")
    (rows, columns), (high, wide) = data.shape, tile
    if scale.shape != (-(-rows // high), -(-columns // wide)):
        raise DataError(f"{name} has scales {tuple(scale.shape)}, not one a {high}x{wide} tile")
    full = scale.repeat_interleave(high, 0)[:rows].repeat_interleave(wide, 1)[:, :columns]
    return data.float() * full
