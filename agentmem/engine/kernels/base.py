"""What a forward pass asks of a backend. Shapes as in Batch: n rows, s sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import torch
from torch import Tensor

from agentmem.engine.batch import Batch
from agentmem.engine.config import Activation
from agentmem.engine.kernels.weights import QuantisedActivation, Weight
from agentmem.engine.kv.layout import KVPages

if TYPE_CHECKING:
    from agentmem.engine.models.decoder import Decoder

RoundingOrder = Literal["round-first", "no-round"]
"""Whether a fused norm rounds to the activation's dtype before it quantises."""


class Layers(Protocol):
    """All layers of one decoder over few rows in one call, as the operations one by one would."""

    most_rows: int

    def run(
        self, x: Tensor, far: Tensor, near: Tensor, batch: Batch, pages: Sequence[KVPages]
    ) -> Tensor:
        """x [n, width], overwritten, to the normed rows behind the last layer in the activation's
        dtype. `far` and `near` are the rotations of full and of sliding layers.
        """


class Kernels(Protocol):
    """A backend. Inputs are contiguous unless said; nothing is kept between calls."""

    name: str
    """As printed and recorded: `torch`, `native/zen4`, ..."""
    invariant: bool
    """True when a row's result does not depend on the rows beside it."""

    def pack(self, weight: Weight) -> Weight:
        """The same matrix, in whatever memory or order the backend likes best; asked at loading."""

    def plan(self, decoder: Decoder) -> Layers | None:
        """A shorter way through a decoder's layers, where the backend has one for it."""

    def embed(self, tokens: Tensor, weight: Weight) -> Tensor:
        """Rows of the matrix, float32 [n, columns]."""

    def linear(
        self, x: Tensor | QuantisedActivation, weight: Weight, bias: Tensor | None = None
    ) -> Tensor:
        """x [n, in] times the matrix, plus bias [out]: [n, out] in x's (original) dtype.

        A plain x for a matrix with an `input_scale` is quantised for it first: fused or not, a
        static fp8 linear computes the same numbers (`quant.fp8.linear` is the reference).
        Raises TypeError for a quantised activation that the weight does not know.
        """

    def norm(self, x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        """RMS norm of x [n, width], weight float32 [width]; float32 inside, then `dtype`."""

    def add_norm(
        self, x: Tensor, delta: Tensor, weight: Tensor, eps: float, dtype: torch.dtype
    ) -> Tensor:
        """Adds delta to x in place (rounded to x's dtype), then the norm of x."""

    def norm_quant(
        self,
        x: Tensor,
        weight: Tensor,
        eps: float,
        scale: Tensor,
        order: RoundingOrder,
        delta: Tensor | None = None,
    ) -> QuantisedActivation:
        """`norm` or `add_norm` and static e4m3 quantisation in one; see quant/ for the contract."""

    def gate(self, gate_up: Tensor, activation: Activation) -> Tensor:
        """act(first half) * second half of [n, 2 * ffn]: [n, ffn] in the same dtype."""

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
        """Norms (where the model does) and turns queries and keys, stores keys and values.

        qkv [n, heads + 2 * kv_heads, dim], neighbouring elements form a pair; rotations float32
        [n, dim / 2, 2] (cosine, sine); `layer` counts within the group's pages. Gives the queries
        [n, heads, dim].
        """

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
        """Causal attention of q [n, heads, dim] over each sequence's own blocks: [n, heads * dim].

        The rows of the pass are in the pages already. With `window`, a row sees itself and the
        `window - 1` positions before it.
        """
