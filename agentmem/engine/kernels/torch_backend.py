"""The arithmetic of a forward pass in plain torch, on any machine.

In the invariant mode a row's result depends on its own sequence and position alone: products run
in shapes whose rows do not see each other, and attention in tiles of fixed places. It holds for
one thread count on one machine, whatever the batch, the chunks, or what came from the cache.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from agentmem.engine.batch import Batch
from agentmem.engine.config import Activation
from agentmem.engine.kernels.base import Layers, RoundingOrder
from agentmem.engine.kernels.paged import Run, attend_run, attend_singles, attend_tiles, by_length
from agentmem.engine.kernels.weights import QuantisedActivation, Weight
from agentmem.engine.kv.layout import KVPages
from agentmem.engine.quant.formats import dequantise, part_of, reorder
from agentmem.engine.quant.fp8 import norm_quant, product, rms, static_quantise
from agentmem.engine.quant.kv import quantise_rows

if TYPE_CHECKING:
    from agentmem.engine.models.decoder import Decoder

_PIECE = 1 << 22
"""Elements of a quantised matrix unpacked at once."""
_STEADY_ROWS = 16
"""Rows of a product in the invariant mode, always: other numbers of rows take other paths, in which
even bf16 rows differ now and then."""


class TorchKernels:
    """See Kernels."""

    name = "torch"

    def __init__(self, invariant: bool = False) -> None:
        self.invariant = invariant

    def pack(self, weight: Weight) -> Weight:
        """See Kernels."""
        return weight

    def plan(self, decoder: Decoder) -> Layers | None:
        """See Kernels."""
        return None

    def embed(self, tokens: Tensor, weight: Weight) -> Tensor:
        """See Kernels."""
        return dequantise(reorder(weight, tokens))

    def linear(
        self, x: Tensor | QuantisedActivation, weight: Weight, bias: Tensor | None = None
    ) -> Tensor:
        """See Kernels."""
        if weight.input_scale is not None and isinstance(x, Tensor):
            x = static_quantise(x, weight.input_scale)
        if isinstance(x, QuantisedActivation):
            return product(x, weight, bias, self._product)
        if weight.scale is None:
            return self._product(x, weight.data, bias)
        out = torch.empty((len(x), weight.rows), dtype=x.dtype)
        step = max(1, _PIECE // weight.columns)
        for start in range(0, weight.rows, step):
            rows = slice(start, start + step)
            out[:, rows] = self._quantised(x, weight, rows)
        if bias is not None:
            out += bias
        return out

    def norm(self, x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        """See Kernels."""
        return rms(x, weight, eps).to(dtype)

    def add_norm(
        self, x: Tensor, delta: Tensor, weight: Tensor, eps: float, dtype: torch.dtype
    ) -> Tensor:
        """See Kernels."""
        x += delta
        return rms(x, weight, eps).to(dtype)

    def norm_quant(
        self,
        x: Tensor,
        weight: Tensor,
        eps: float,
        scale: Tensor,
        order: RoundingOrder,
        delta: Tensor | None = None,
    ) -> QuantisedActivation:
        """See Kernels."""
        return norm_quant(x, weight, eps, scale, order, delta)

    def gate(self, gate_up: Tensor, activation: Activation) -> Tensor:
        """See Kernels."""
        gate, up = gate_up.chunk(2, dim=-1)
        opened = F.silu(gate) if activation == "silu" else F.gelu(gate, approximate="tanh")
        return opened * up

    def rope_store(
        self,
        qkv: Tensor,
        rotations: Tensor,
        slots: Tensor,
        pages: KVPages,
        layer: int,
        kv_heads: int,
        qk_norm: Tensor | None,
        eps: float,
    ) -> Tensor:
        """See Kernels."""
        queries = qkv.shape[1] - 2 * kv_heads
        qk = qkv[:, : queries + kv_heads].float()
        if qk_norm is not None:
            qk = F.rms_norm(qk, qk.shape[-1:], None, eps) * qk_norm
            qk = qk.to(qkv.dtype).float()
        pairs = torch.view_as_complex(qk.reshape(*qk.shape[:-1], -1, 2))
        turned = torch.view_as_real(pairs * torch.view_as_complex(rotations)[:, None])
        qk = turned.flatten(-2).to(qkv.dtype)
        store(pages, layer, slots, qk[:, queries:], qkv[:, queries + kv_heads :])
        return qk[:, :queries]

    def attend(
        self,
        q: Tensor,
        pages: KVPages,
        layer: int,
        batch: Batch,
        group: int,
        scale: float,
        window: int | None,
    ) -> Tensor:
        """See Kernels."""
        starts, contexts = batch.starts.tolist(), batch.contexts.tolist()
        table = batch.tables[group]
        runs = [
            Run(starts[i], starts[i + 1], contexts[i], table[i]) for i in range(batch.sequences)
        ]
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        if self.invariant:
            for run in runs:
                attend_tiles(q, out, pages, layer, run, scale, window)
            return out.flatten(1)
        for run in runs:
            if run.rows > 1:
                out[run.first : run.stop] = attend_run(q, pages, layer, run, scale, window)
        for alike in by_length([run for run in runs if run.rows == 1]):
            at = torch.tensor([run.first for run in alike])
            out[at] = attend_singles(q[at], pages, layer, alike, scale, window)
        return out.flatten(1)

    def _quantised(self, x: Tensor, weight: Weight, rows: slice) -> Tensor:
        """x times some rows of a matrix: codes are exact in x's dtype, scales come behind."""
        assert weight.scale is not None
        if weight.format == "int4":
            return self._product(x, dequantise(part_of(weight, rows), x.dtype))
        return self._product(x, weight.data[rows].to(x.dtype)).float() * weight.scale[rows]

    def _product(self, x: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
        """x [n, in] times the transposed matrix [out, in], plus bias."""
        if self.invariant:
            return _steady_product(x, matrix, bias)
        if len(x) != 1:
            return F.linear(x, matrix, bias)
        # one row: a matrix-vector product reads the weights nearly twice as fast as a matmul
        out = torch.mv(matrix, x[0]) if bias is None else torch.addmv(bias, matrix, x[0])
        return out[None]


def store(pages: KVPages, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
    """Write rows [n, kv_heads, dim] of a layer at their slots, in the pages' own type."""
    size = pages.block_size
    block, offset = slots // size, slots % size
    for which, rows in enumerate((keys, values)):
        if pages.scales is None:
            pages.data[layer, which][block, :, offset] = rows.to(pages.data.dtype)
        else:
            codes, scales = quantise_rows(rows)
            pages.data[layer, which][block, :, offset] = codes
            pages.scales[layer, which][block, :, offset] = scales


def _steady_product(x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    """A product whose rows do not depend on how many there are."""
    padded = F.pad(x, (0, 0, 0, -len(x) % _STEADY_ROWS))
    pieces = torch.split(padded, _STEADY_ROWS)
    return torch.cat([F.linear(piece, matrix, bias) for piece in pieces])[: len(x)]


@lru_cache(maxsize=1)
def kernels_for(invariant: bool) -> TorchKernels:
    """The one instance of a kind."""
    return TorchKernels(invariant)
