"""All layers over few rows in one native call: a step of small batches is over before the calls
of its operations would be. The results are those of the operations one by one, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from agentmem.engine.batch import Batch
from agentmem.engine.kernels import native
from agentmem.engine.kernels.pointers import TYPES, matrix, optional
from agentmem.engine.kernels.weights import Weight
from agentmem.engine.kv.layout import KVPages

if TYPE_CHECKING:
    from agentmem.engine.models.decoder import Decoder, LayerWeights

_PLAIN = (torch.float32, torch.bfloat16)


class Plan:
    """The layers of a decoder, by their addresses. Holds the tensors that it points at."""

    most_rows = native.FEW
    """Those for which every product is native anyway."""

    def __init__(self, decoder: Decoder) -> None:
        c = decoder.config
        self._keep = decoder.weights
        self._dtype = decoder.dtype
        self._plan: Any = native.module().Plan(
            c.width,
            c.ffn_width,
            c.heads,
            c.kv_heads,
            c.head_dim,
            c.norm_eps,
            c.attention_scale,
            native.ACTIVATIONS[c.activation],
            TYPES[decoder.dtype],
            TYPES[decoder.residual],
            decoder.order == "round-first",
            decoder.weights.norm.data_ptr(),
            TYPES[decoder.weights.norm.dtype],
        )
        places = {
            layer: (group, at, spec.window or 0, int(c.is_sliding(layer)))
            for group, spec in enumerate(decoder.groups)
            for at, layer in enumerate(spec.layers)
        }
        for i, layer in enumerate(decoder.weights.layers):
            self._add(layer, places[i])

    def run(
        self, x: Tensor, far: Tensor, near: Tensor, batch: Batch, pages: Sequence[KVPages]
    ) -> Tensor:
        """The normed rows behind the last layer, in the activation's dtype: like x [n, width].

        x is overwritten. `far` and `near` are the rotations of full and sliding layers, float32.
        """
        out = torch.empty(x.shape, dtype=self._dtype)
        kept: list[Tensor] = []
        places: list[int] = []
        for group, own in enumerate(pages):
            slots, table = batch.slots[group].contiguous(), batch.tables[group].contiguous()
            kept += (slots, table)
            scales = 0 if own.scales is None else own.scales.data_ptr()
            places += (TYPES[own.data.dtype], own.data.data_ptr(), scales, own.blocks)
            places += (own.block_size, slots.data_ptr(), table.data_ptr(), table.shape[1])
        far, near = far.contiguous(), near.contiguous()
        self._plan.run(
            x.data_ptr(),
            len(x),
            batch.sequences,
            far.data_ptr(),
            near.data_ptr(),
            batch.starts.data_ptr(),
            batch.contexts.data_ptr(),
            places,
            out.data_ptr(),
            torch.get_num_threads(),
        )
        return out

    def _add(self, layer: LayerWeights, place: tuple[int, int, int, int]) -> None:
        norms = (
            layer.attn_norm.data_ptr(),
            TYPES[layer.attn_norm.dtype],
            layer.ffn_norm.data_ptr(),
            TYPES[layer.ffn_norm.dtype],
            *(_address(t) for t in (layer.qk_norm, layer.post_attn_norm, layer.post_ffn_norm)),
        )
        self._plan.add_layer(
            norms,
            _factor(layer.qkv, layer.qkv_bias, layer.fuse_attn_norm),
            _factor(layer.out, layer.out_bias, False),
            _factor(layer.gate_up, None, layer.fuse_ffn_norm),
            _factor(layer.down, None, False),
            place,
        )


def plan_for(decoder: Decoder) -> Plan | None:
    """The plan of a decoder, or None where its kernels are torch's or it is not one to take."""
    if native.WHY_NOT or not isinstance(decoder.kernels, native.NativeKernels):
        return None
    return Plan(decoder) if takes(decoder) else None


def takes(decoder: Decoder) -> bool:
    """Whether every operation of the decoder is one that native code has."""
    dtype, c = decoder.dtype, decoder.config
    if dtype not in _PLAIN or decoder.residual not in _PLAIN or c.head_dim % 2:
        return False
    known = {"int8", "int4", "fp32" if dtype == torch.float32 else "bf16"}
    if dtype == torch.bfloat16:
        known.add("fp8")
    weights = decoder.weights
    matrices = [m for layer in weights.layers for m in layer.matrices]
    norms = [n for layer in weights.layers for n in (layer.attn_norm, layer.ffn_norm)]
    own = [t for x in weights.layers for t in (x.qk_norm, x.post_attn_norm, x.post_ffn_norm)]
    return (
        all(m.format in known and m.data.is_contiguous() for m in matrices)
        and not any(_quantises(layer) for layer in weights.layers)
        and all(n.dtype in _PLAIN and n.is_contiguous() for n in [*norms, weights.norm])
        and all(t is None or (t.dtype == torch.float32 and t.is_contiguous()) for t in own)
    )


def _quantises(layer: LayerWeights) -> bool:
    """A matrix with a static scale quantises a plain activation first, which a plan does not."""
    plain = [layer.out, layer.down]
    plain += [] if layer.fuse_attn_norm else [layer.qkv]
    plain += [] if layer.fuse_ffn_norm else [layer.gate_up]
    return any(matrix.input_scale is not None for matrix in plain)


def _factor(weight: Weight, bias: Tensor | None, fused: bool) -> tuple[int, ...]:
    scale = weight.input_scale if fused else None
    return (*matrix(weight), *optional(bias), _address(scale))


def _address(x: Tensor | None) -> int:
    return 0 if x is None else x.data_ptr()
