"""The Kernels protocol on a GPU. Importable without triton; made only where it can run."""

from __future__ import annotations

import torch
from torch import Tensor

from agentmem.engine.batch import Batch
from agentmem.engine.config import Activation
from agentmem.engine.gpu.devices import interpreting, unavailable
from agentmem.engine.kernels.base import RoundingOrder
from agentmem.engine.kernels.weights import QuantisedActivation, Weight
from agentmem.engine.kv.layout import KVPages
from agentmem.engine.quant.fp8 import check_known
from agentmem.errors import EngineError


class TritonKernels:
    """Triton kernels; tensors live on one device.

    `invariant` works on every row alone and in one order of sums, at the price of speed in
    prefill. Raises EngineError where triton or a GPU is missing; Triton's interpreter
    (TRITON_INTERPRET=1, for tests) counts as one.
    """

    def __init__(self, *, invariant: bool = False) -> None:
        reason = unavailable()
        if reason is not None:
            raise EngineError(reason)
        from agentmem.engine.gpu import attention, norms, products

        self._attention, self._norms, self._products = attention, norms, products
        self.invariant = invariant
        self.name = f"triton/{_device_name()}"

    def embed(self, tokens: Tensor, weight: Weight) -> Tensor:
        """Rows of the matrix, float32 [n, columns]."""
        data = weight.data
        if data.dtype == torch.float8_e4m3fn:  # bytes gather everywhere, codes do not
            rows = data.view(torch.uint8)[tokens].view(torch.float8_e4m3fn).float()
        else:
            rows = data[tokens]
        if weight.format == "int4":
            rows = torch.stack((rows & 15, rows >> 4), dim=2).flatten(1).float() - 8
        if weight.scale is None:
            return rows.float()
        scale = weight.scale[tokens]
        if weight.format == "int4":
            wide = rows.view(*scale.shape, -1) * scale[..., None]
            if weight.offset is not None:
                wide += weight.offset[tokens][..., None]
            return wide.flatten(1)
        return rows.float() * scale[:, None]

    def linear(
        self, x: Tensor | QuantisedActivation, weight: Weight, bias: Tensor | None = None
    ) -> Tensor:
        """x [n, in] times the matrix, plus bias [out]: [n, out] in x's (original) dtype.

        Raises TypeError for a quantised activation that the weight does not know, EngineError for
        fp8 on a device without it.
        """
        if isinstance(x, Tensor):
            return self._products.linear(x, weight, bias, self.invariant)
        check_known(x, weight)
        return self._products.linear_quantised(x, weight, bias, self.invariant)

    def norm(self, x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        """RMS norm of x [n, width], float32 inside, then `dtype`."""
        return self._norms.norm(x, None, weight, eps, dtype)

    def add_norm(
        self, x: Tensor, delta: Tensor, weight: Tensor, eps: float, dtype: torch.dtype
    ) -> Tensor:
        """Adds delta to x in place (rounded to x's dtype), then the norm of x."""
        return self._norms.norm(x, delta, weight, eps, dtype)

    def norm_quant(
        self,
        x: Tensor,
        weight: Tensor,
        eps: float,
        scale: Tensor,
        order: RoundingOrder,
        delta: Tensor | None = None,
    ) -> QuantisedActivation:
        """`norm` or `add_norm` and static e4m3 quantisation in one pass."""
        return self._norms.norm_quant(x, delta, weight, eps, scale, order)

    def gate(self, gate_up: Tensor, activation: Activation) -> Tensor:
        """act(first half) * second half of [n, 2 * ffn]: [n, ffn] in the same dtype."""
        return self._norms.gate(gate_up, activation)

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
        """Norms (where the model does) and turns queries and keys, stores keys and values."""
        return self._attention.rope_store(
            qkv, rotations, slots, pages, layer, kv_heads, qk_norm, eps
        )

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
        """Causal attention of q [n, heads, dim] over each sequence's own blocks."""
        return self._attention.attend(q, pages, layer, batch, group, scale, window, self.invariant)

    def largest(self, logits: Tensor) -> Tensor:
        """Place of the largest logit of each row, the first of equals: int64 [n]."""
        return self._products.largest(logits)


def _device_name() -> str:
    if interpreting():
        return "interpreter"
    if torch.version.hip is not None:
        return str(torch.cuda.get_device_properties(0).gcnArchName).split(":")[0]
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"
