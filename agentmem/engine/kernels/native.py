"""The arithmetic of a forward pass in native code, torch where that is faster or not taken.

Matrix-vector and small-batch products, norms, gates, rotations and attention run here; products of
many rows run in torch on a matrix unpacked to bf16, or as int8 by groups of 64. All native code
computes a row in one order whatever is beside it, so the invariant mode is the same code with
every product kept native: a row's result then depends on its own sequence and position alone.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from agentmem.engine.batch import Batch
from agentmem.engine.config import Activation
from agentmem.engine.kernels import arena
from agentmem.engine.kernels.base import RoundingOrder
from agentmem.engine.kernels.pointers import (
    TYPES,
    contiguous,
    matrix,
    optional,
    page_numbers,
    plain,
    whole,
)
from agentmem.engine.kernels.processor import cpu_flags
from agentmem.engine.kernels.torch_backend import TorchKernels
from agentmem.engine.kernels.weights import QuantisedActivation, Weight
from agentmem.engine.kv.layout import KVPages
from agentmem.engine.quant.fp8 import check_known, static_quantise

if TYPE_CHECKING:
    from agentmem.engine.kernels.base import Layers
    from agentmem.engine.models.decoder import Decoder

_native: Any = None
WHY_NOT: str | None = None
try:
    _native = importlib.import_module("agentmem.engine.kernels._native")
except ImportError as error:  # built without a compiler, or not for this Python
    WHY_NOT = f"no native module: {error}"

VERSION = 2
"""Of what the module takes and computes; part of the cache identity beside the instruction set."""
if _native is not None and _native.VERSION != VERSION:
    WHY_NOT = f"the native module has version {_native.VERSION}, not {VERSION}: install again"
    _native = None
Prefill = Literal["unpack", "group64"]
"""How many rows meet int8 weights: in bf16, or with activations in 8 bits by groups of 64."""

ACTIVATIONS = {"silu": 0, "gelu_tanh": 1}
FEW = 16
"""Rows up to which a product is native."""
_MANY = 48
"""Rows of a sequence from which attention is torch's, where the processor has AMX."""
_FEW_BYTES = 1 << 16
"""Matrices and rows below this size are not worth a second thread."""


class NativeKernels(TorchKernels):
    """See Kernels."""

    def __init__(self, invariant: bool = False, prefill: Prefill = "unpack") -> None:
        super().__init__(invariant)
        if _native is None:
            raise ImportError(WHY_NOT)
        self.name = f"native/{_native.current()}"
        self.prefill = prefill
        self._room = torch.empty(0, dtype=torch.uint8)

    def pack(self, weight: Weight) -> Weight:
        """The same matrix in memory of huge pages, where the system gives any."""
        return arena.settle(weight)

    def plan(self, decoder: Decoder) -> Layers | None:
        """See Kernels."""
        from agentmem.engine.kernels.plan import plan_for  # it takes decoders apart

        return plan_for(decoder)

    def embed(self, tokens: Tensor, weight: Weight) -> Tensor:
        """See Kernels."""
        if not contiguous(weight.data) or len(tokens) == 0:
            return super().embed(tokens, weight)
        n, columns = len(tokens), weight.columns
        out = torch.empty((n, columns), dtype=torch.float32)
        _native.embed(
            whole(tokens).data_ptr(),
            *matrix(weight),
            n,
            1.0,
            out.data_ptr(),
            _threads(out.nbytes),
        )
        return out

    def linear(
        self, x: Tensor | QuantisedActivation, weight: Weight, bias: Tensor | None = None
    ) -> Tensor:
        """See Kernels."""
        if weight.input_scale is not None and isinstance(x, Tensor):
            x = static_quantise(x, weight.input_scale)
        if isinstance(x, QuantisedActivation):
            check_known(x, weight)
            data, dtype, scale = x.data, x.out_dtype, x.scale.data_ptr()
        else:
            data, dtype, scale = x, x.dtype, 0
        n = len(data)
        if not self._takes(data, dtype, weight, bias):
            return super().linear(x, weight, bias)
        if n > FEW and not self.invariant:
            return self._many(x, weight, bias)
        out = torch.empty((n, weight.rows), dtype=dtype)
        data = whole(data)
        _native.linear(
            *matrix(weight),
            data.data_ptr(),
            TYPES[data.dtype],
            scale,
            n,
            *optional(bias),
            out.data_ptr(),
            TYPES[dtype],
            _threads(weight.data.nbytes * n),
        )
        return out

    def norm(self, x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        """See Kernels."""
        if not plain(x, weight) or dtype not in TYPES:
            return super().norm(x, weight, eps, dtype)
        return self._norm(whole(x), weight, eps, dtype, None)

    def add_norm(
        self, x: Tensor, delta: Tensor, weight: Tensor, eps: float, dtype: torch.dtype
    ) -> Tensor:
        """See Kernels."""
        if not plain(x, weight, delta) or dtype not in TYPES or not x.is_contiguous():
            return super().add_norm(x, delta, weight, eps, dtype)
        return self._norm(x, weight, eps, dtype, whole(delta))

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
        alike = weight.dtype == x.dtype and scale.dtype == torch.float32
        if not (alike and plain(x, weight, delta) and x.is_contiguous()):
            return super().norm_quant(x, weight, eps, scale, order, delta)
        rounded = TYPES[x.dtype] if order == "round-first" else 0
        other = None if delta is None else whole(delta)
        data = self._norm(x, weight, eps, torch.float8_e4m3fn, other, rounded, scale.data_ptr())
        return QuantisedActivation(data, scale, x.dtype)

    def gate(self, gate_up: Tensor, activation: Activation) -> Tensor:
        """See Kernels."""
        if not plain(gate_up):
            return super().gate(gate_up, activation)
        n, width = gate_up.shape[0], gate_up.shape[1] // 2
        out = torch.empty((n, width), dtype=gate_up.dtype)
        _native.gate(
            whole(gate_up).data_ptr(),
            TYPES[gate_up.dtype],
            n,
            width,
            ACTIVATIONS[activation],
            out.data_ptr(),
            _threads(out.nbytes),
        )
        return out

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
        n, all_heads, dim = qkv.shape
        if not plain(qkv) or dim % 2 or (qk_norm is not None and not plain(qk_norm)):
            return super().rope_store(qkv, rotations, slots, pages, layer, kv_heads, qk_norm, eps)
        heads = all_heads - 2 * kv_heads
        out = torch.empty((n, heads, dim), dtype=qkv.dtype)
        turned = whole(rotations)
        _native.rope(
            whole(qkv).data_ptr(),
            TYPES[qkv.dtype],
            turned.data_ptr(),
            whole(slots).data_ptr(),
            *page_numbers(pages, layer),
            n,
            heads,
            0 if qk_norm is None else qk_norm.data_ptr(),
            eps,
            out.data_ptr(),
            _threads(qkv.nbytes),
        )
        return out

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
        n, heads, dim = q.shape
        if not plain(q) or dim > 1024 or self._tiles(q, n // max(1, batch.sequences)):
            return super().attend(q, pages, layer, batch, group, scale, window)
        table = whole(batch.tables[group])
        out = torch.empty((n, heads * dim), dtype=q.dtype)
        _native.attend(
            whole(q).data_ptr(),
            TYPES[q.dtype],
            *page_numbers(pages, layer),
            heads,
            batch.sequences,
            whole(batch.starts).data_ptr(),
            whole(batch.contexts).data_ptr(),
            table.data_ptr(),
            table.shape[1],
            scale,
            window or 0,
            out.data_ptr(),
            torch.get_num_threads(),
        )
        return out

    def argmax(self, logits: Tensor) -> Tensor:
        """The first of the largest of each row [n, width]: int64 [n]."""
        if not plain(logits) or logits.shape[1] == 0:
            return logits.argmax(dim=-1)
        out = torch.empty(len(logits), dtype=torch.int64)
        rows = whole(logits)
        _native.argmax(
            rows.data_ptr(),
            TYPES[rows.dtype],
            *rows.shape,
            out.data_ptr(),
            torch.get_num_threads(),
        )
        return out

    def _tiles(self, q: Tensor, rows: int) -> bool:
        """Whether torch has matrix instructions for prefill that this code has not."""
        many = rows >= _MANY and q.dtype == torch.bfloat16
        return many and not self.invariant and "amx_bf16" in cpu_flags()

    def _takes(self, x: Tensor, dtype: torch.dtype, weight: Weight, bias: Tensor | None) -> bool:
        """Whether the native product knows these shapes and types."""
        if dtype not in (torch.float32, torch.bfloat16) or x.dim() != 2 or len(x) == 0:
            return False
        if x.shape[1] != weight.columns or not contiguous(weight.data):
            return False
        if bias is not None and not plain(bias):
            return False
        kind = weight.format
        if kind == "fp32":
            return x.dtype == torch.float32 and (self.invariant or len(x) <= FEW)
        if kind in ("bf16", "fp8"):  # these would round float32 activations
            return x.dtype in (torch.bfloat16, torch.float8_e4m3fn)
        return x.dtype in (torch.bfloat16, torch.float32) and weight.group in (None, 32, 64, 128)

    def _many(self, x: Tensor | QuantisedActivation, weight: Weight, bias: Tensor | None) -> Tensor:
        """Enough rows that a matrix product in torch is faster, or an int8 one by groups."""
        if isinstance(x, QuantisedActivation):
            return super().linear(x, weight, bias)
        if bias is not None:
            bias = bias.to(x.dtype)
        if weight.format in ("fp32", "bf16"):
            return super().linear(x, weight, bias)
        if weight.format == "int8" and self.prefill == "group64" and weight.columns % 64 == 0:
            return self._grouped(x, weight, bias)
        if x.dtype != torch.bfloat16:
            return super().linear(x, weight, bias)
        room = self._borrow(2 * weight.rows * weight.columns).view(torch.bfloat16)
        codes = room.view(weight.rows, weight.columns)
        _native.unpack(*matrix(weight), codes.data_ptr(), torch.get_num_threads())
        return F.linear(x, codes, bias)

    def _grouped(self, x: Tensor, weight: Weight, bias: Tensor | None) -> Tensor:
        assert weight.scale is not None
        out = torch.empty((len(x), weight.rows), dtype=x.dtype)
        rows = whole(x)
        room = self._borrow(x.numel() * 9 // 8 + 64)
        _native.grouped(
            weight.data.data_ptr(),
            weight.scale.data_ptr(),
            *weight.data.shape,
            rows.data_ptr(),
            TYPES[x.dtype],
            len(x),
            *optional(bias),
            out.data_ptr(),
            TYPES[x.dtype],
            room.data_ptr(),
            torch.get_num_threads(),
        )
        return out

    def _norm(
        self,
        x: Tensor,
        weight: Tensor,
        eps: float,
        dtype: torch.dtype,
        delta: Tensor | None,
        rounded: int = 0,
        scale: int = 0,
    ) -> Tensor:
        out = torch.empty(x.shape, dtype=dtype)
        width = x.shape[-1]
        _native.norm(
            x.data_ptr(),
            TYPES[x.dtype],
            *optional(delta),
            weight.data_ptr(),
            TYPES[weight.dtype],
            eps,
            x.numel() // width if width else 0,
            width,
            out.data_ptr(),
            TYPES[dtype],
            rounded,
            scale,
            _threads(x.nbytes),
        )
        return out

    def _borrow(self, size: int) -> Tensor:
        """Memory that lasts until the next product: uint8 [size]."""
        if len(self._room) < size:
            self._room = torch.empty(size, dtype=torch.uint8)
        return self._room[:size]


@cache
def kernels_for(invariant: bool, prefill: Prefill = "unpack") -> NativeKernels:
    """The one instance of a kind."""
    return NativeKernels(invariant, prefill)


def module() -> Any:
    """The native module itself; ImportError where there is none."""
    if _native is None:
        raise ImportError(WHY_NOT)
    return _native


def builds() -> list[str]:
    """Instruction sets that the module has code for and this processor runs, slowest first."""
    found: list[str] = [] if _native is None else _native.available()
    return found


def _threads(size: int) -> int:
    return 1 if size < _FEW_BYTES else torch.get_num_threads()
