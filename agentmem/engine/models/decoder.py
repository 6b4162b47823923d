"""The decoder forward pass shared by llama, qwen2 and gemma3, over a backend's kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentmem.engine.batch import Batch
from agentmem.engine.config import DecoderConfig
from agentmem.engine.kernels.base import Kernels, RoundingOrder
from agentmem.engine.kernels.weights import QuantisedActivation, Weight
from agentmem.engine.kv.layout import KVPages, groups_of
from agentmem.engine.rope import RopeTable


class PassInterruptedError(Exception):
    """A pass was given up between two layers; what it wrote to the pages means nothing."""


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One block. Norms are float32, but for those fused with quantisation: the activation's dtype.

    Query and key rows are ordered so that the two halves of a rotation are neighbours.
    """

    attn_norm: Tensor
    qkv: Weight
    qkv_bias: Tensor | None
    out: Weight
    out_bias: Tensor | None
    ffn_norm: Tensor
    gate_up: Weight
    down: Weight
    qk_norm: Tensor | None = None
    """[heads + kv_heads, head_dim]: the query's norm weight per query head, then the key's."""
    post_attn_norm: Tensor | None = None
    post_ffn_norm: Tensor | None = None
    fuse_attn_norm: bool = False
    """`attn_norm` quantises for `qkv` at once."""
    fuse_ffn_norm: bool = False
    """`ffn_norm` quantises for `gate_up` at once."""

    @property
    def matrices(self) -> tuple[Weight, Weight, Weight, Weight]:
        """Everything that a row is multiplied with."""
        return self.qkv, self.out, self.gate_up, self.down


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """`head` is the embedding itself where the model ties them."""

    embedding: Weight
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Weight


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a layer keeps its state and how it turns its queries and keys."""

    group: int
    layer: int
    """Within the group."""
    window: int | None
    local: bool


class Decoder:
    """Weights and shape of one model; all state of the sequences lies in the pages.

    `dtype` is of activations, `residual` of the stream that the blocks add to; `order` is the
    rounding of fused norms. `notes` are lines on what was wished for and is not done.
    """

    def __init__(
        self,
        config: DecoderConfig,
        weights: DecoderWeights,
        kernels: Kernels,
        *,
        dtype: torch.dtype,
        residual: torch.dtype = torch.float32,
        order: RoundingOrder = "round-first",
        notes: tuple[str, ...] = (),
    ) -> None:
        self.config, self.weights, self.kernels = config, weights, kernels
        self.dtype, self.residual, self.order = dtype, residual, order
        self.notes = notes
        self.groups = groups_of(config)
        self._places = _places(config)
        self._rope = RopeTable(config.rope, config.head_dim)
        local = config.local_rope
        self._local_rope = RopeTable(local, config.head_dim) if local else self._rope
        self._plan = kernels.plan(self)

    def forward(
        self,
        batch: Batch,
        pages: Sequence[KVPages],
        stop: Callable[[], bool] | None = None,
    ) -> Tensor:
        """Run the rows; fills their slots, and gives logits [m, vocab] in the activation's dtype.

        `stop` is asked between layers; PassInterruptedError when it says so.
        """
        kernels, wanted = self.kernels, batch.outputs
        x = kernels.embed(batch.tokens, self.weights.embedding)
        if self.config.embed_scale != 1.0:
            x *= self.config.embed_scale
        x = x.to(self.residual)
        far = self._rope.at(batch.positions)
        near = far if self._local_rope is self._rope else self._local_rope.at(batch.positions)
        if self._plan is not None and len(x) <= self._plan.most_rows:
            h = self._plan.run(x, far, near, batch, pages)
            return self._logits(h[wanted])
        delta: Tensor | None = None
        for i, (layer, place) in enumerate(zip(self.weights.layers, self._places, strict=True)):
            if stop is not None and stop():
                raise PassInterruptedError
            last = i == len(self._places) - 1
            rotations = near if place.local else far
            a = self._attention(layer, place, x, delta, batch, pages, rotations, last)
            if last:
                # nothing but the rows asked for is needed any more
                if len(wanted) == 0:
                    return self._logits(x.new_empty((0, 0), dtype=self.dtype))
                a, x = a[wanted], x[wanted]
            delta = self._feed_forward(layer, x, self._out(layer, a))
        return self._logits(self._norm(x, delta, self.weights.norm))

    def _logits(self, h: Tensor) -> Tensor:
        if len(h) == 0:
            return h.new_empty((0, self.weights.head.rows))
        return self.kernels.linear(h, self.weights.head)

    def _attention(
        self,
        layer: LayerWeights,
        place: _Place,
        x: Tensor,
        delta: Tensor | None,
        batch: Batch,
        pages: Sequence[KVPages],
        rotations: Tensor,
        last: bool,
    ) -> Tensor:
        """Adds delta to x in place; gives the heads' sums [n, heads * dim]."""
        c, kernels = self.config, self.kernels
        scale = layer.qkv.input_scale if layer.fuse_attn_norm else None
        h = self._normed(x, delta, layer.attn_norm, scale)
        qkv = kernels.linear(h, layer.qkv, layer.qkv_bias).view(len(x), -1, c.head_dim)
        own, slots = pages[place.group], batch.slots[place.group]
        q = kernels.rope_store(
            qkv, rotations, slots, own, place.layer, c.kv_heads, layer.qk_norm, c.norm_eps
        )
        if last and len(batch.outputs) == 0:
            return x
        return kernels.attend(
            q, own, place.layer, batch, place.group, c.attention_scale, place.window
        )

    def _out(self, layer: LayerWeights, a: Tensor) -> Tensor:
        out = self.kernels.linear(a, layer.out, layer.out_bias)
        return self._post(out, layer.post_attn_norm)

    def _feed_forward(self, layer: LayerWeights, x: Tensor, delta: Tensor) -> Tensor:
        """Adds delta to x in place; gives what the block adds behind it."""
        scale = layer.gate_up.input_scale if layer.fuse_ffn_norm else None
        h = self._normed(x, delta, layer.ffn_norm, scale)
        h = self.kernels.linear(h, layer.gate_up)
        assert isinstance(h, Tensor)
        opened = self.kernels.gate(h, self.config.activation)
        return self._post(self.kernels.linear(opened, layer.down), layer.post_ffn_norm)

    def _post(self, out: Tensor, weight: Tensor | None) -> Tensor:
        if weight is None:
            return out
        return self.kernels.norm(out, weight, self.config.norm_eps, torch.float32)

    def _normed(
        self, x: Tensor, delta: Tensor | None, weight: Tensor, scale: Tensor | None
    ) -> Tensor | QuantisedActivation:
        """The norm in front of a linear; with a scale, quantised for it at once."""
        if scale is None:
            return self._norm(x, delta, weight)
        eps = self.config.norm_eps
        return self.kernels.norm_quant(x, weight, eps, scale, self.order, delta)

    def _norm(self, x: Tensor, delta: Tensor | None, weight: Tensor) -> Tensor:
        eps = self.config.norm_eps
        if delta is None:
            return self.kernels.norm(x, weight, eps, self.dtype)
        return self.kernels.add_norm(x, delta, weight, eps, self.dtype)


def _places(config: DecoderConfig) -> tuple[_Place, ...]:
    found: dict[int, _Place] = {}
    for group, spec in enumerate(groups_of(config)):
        for at, layer in enumerate(spec.layers):
            found[layer] = _Place(group, at, spec.window, config.is_sliding(layer))
    return tuple(found[layer] for layer in range(config.layers))
