"""The decoder forward pass shared by llama, qwen2 and gemma3, in plain torch on a CPU."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from agentmem.engine.cache import KVCache
from agentmem.engine.config import DecoderConfig
from agentmem.engine.rope import RopeTable, rotate


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One block. Matrices are [out, in] in the mode's dtype, norms float32.

    Query and key rows are ordered so that the two halves of a rotation are neighbours.
    """

    attn_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    ffn_norm: Tensor
    gate_up: Tensor
    down: Tensor
    qk_norm: Tensor | None = None
    """[heads + kv_heads, head_dim]: the query's norm weight per query head, then the key's."""
    post_attn_norm: Tensor | None = None
    post_ffn_norm: Tensor | None = None


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """`head` is the embedding itself where the model ties them."""

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Tensor


@dataclass(frozen=True, slots=True)
class _Reach:
    """What one kind of layer sees in a step: rotations, first visible key, additive mask."""

    rows: Tensor
    first_key: int
    mask: Tensor | None
    causal: bool


class Decoder:
    """Weights and shape of one model; all state of a sequence lies in its KVCache."""

    def __init__(self, config: DecoderConfig, weights: DecoderWeights) -> None:
        self.config = config
        self.weights = weights
        self.dtype = weights.embedding.dtype
        self._rope = RopeTable(config.rope, config.head_dim)
        local = config.local_rope
        self._local_rope = RopeTable(local, config.head_dim) if local else self._rope

    def new_cache(self, capacity: int = 0) -> KVCache:
        """An empty cache with room for this many positions."""
        return KVCache(self.config, self.dtype, capacity)

    def forward(self, tokens: Tensor, cache: KVCache, last_only: bool = True) -> Tensor:
        """Run tokens [n] behind what the cache holds; fills the cache.

        Gives logits [vocab] of the last token, or [n, vocab] of all, in the mode's dtype.
        """
        start, stop = cache.length, cache.length + len(tokens)
        cache.reserve(stop)
        x = F.embedding(tokens, self.weights.embedding).float()
        if self.config.embed_scale != 1.0:
            x *= self.config.embed_scale
        full = self._reach(start, stop, None, self._rope)
        window = self.config.sliding_window
        local = self._reach(start, stop, window, self._local_rope) if window else full
        for i, layer in enumerate(self.weights.layers):
            self._block(i, layer, x, cache, local if self.config.is_sliding(i) else full)
        cache.length = stop
        if last_only:
            x = x[-1:]
        out = linear(self._norm(x, self.weights.norm), self.weights.head)
        return out[0] if last_only else out

    def _block(self, i: int, layer: LayerWeights, x: Tensor, cache: KVCache, reach: _Reach) -> None:
        """One block; adds to the residual stream x [n, width] (float32) in place."""
        h = self._attention(i, layer, self._norm(x, layer.attn_norm), cache, reach)
        if layer.post_attn_norm is not None:
            h = self._rms(h.float(), layer.post_attn_norm)
        x += h
        h = self._norm(x, layer.ffn_norm)
        gate, up = linear(h, layer.gate_up).chunk(2, dim=-1)
        silu = self.config.activation == "silu"
        gate = F.silu(gate) if silu else F.gelu(gate, approximate="tanh")
        h = linear(gate * up, layer.down)
        if layer.post_ffn_norm is not None:
            h = self._rms(h.float(), layer.post_ffn_norm)
        x += h

    def _attention(
        self, i: int, layer: LayerWeights, h: Tensor, cache: KVCache, reach: _Reach
    ) -> Tensor:
        c = self.config
        heads = linear(h, layer.qkv, layer.qkv_bias).view(len(h), -1, c.head_dim)
        qk = heads[:, : c.heads + c.kv_heads]
        if layer.qk_norm is not None:
            qk = F.rms_norm(qk.float(), (c.head_dim,), None, c.norm_eps) * layer.qk_norm
            qk = qk.to(self.dtype)
        qk = rotate(qk, reach.rows)
        start = cache.length
        cache.write(i, start, qk[:, c.heads :], heads[:, c.heads + c.kv_heads :])
        keys, values = cache.data[i, :, :, reach.first_key : start + len(h)]
        h = attend(qk[:, : c.heads], keys, values, reach.mask, reach.causal, c.attention_scale)
        return linear(h, layer.out, layer.out_bias)

    def _reach(self, start: int, stop: int, window: int | None, rope: RopeTable) -> _Reach:
        """Which keys the queries at start..stop see: all before them, or the last `window`."""
        first = max(0, start - window + 1) if window else 0
        rows = rope.rows(start, stop)
        short = window is None or stop - first <= window
        if stop - start == 1:
            return _Reach(rows, first, None, False)
        if short and start == 0:
            return _Reach(rows, 0, None, True)
        queries = torch.arange(start, stop)[:, None]
        keys = torch.arange(first, stop)[None]
        hidden = keys > queries
        if not short and window is not None:
            hidden |= keys <= queries - window
        mask = torch.zeros(hidden.shape, dtype=self.dtype).masked_fill_(hidden, -torch.inf)
        return _Reach(rows, first, mask, False)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return self._rms(x, weight).to(self.dtype)

    def _rms(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.config.norm_eps)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [n, in] times weight [out, in], plus bias."""
    if len(x) > 1:
        return F.linear(x, weight, bias)
    # one row: a matrix-vector product reads the weights nearly twice as fast as a matmul
    out = torch.mv(weight, x[0]) if bias is None else torch.addmv(bias, weight, x[0])
    return out[None]


def attend(
    q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> Tensor:
    """Attention of q [n, heads, dim] over keys and values [kv_heads, m, dim]: [n, heads * dim].

    Neighbouring query heads share a key head; nothing is repeated in memory.
    """
    n, heads, dim = q.shape
    groups = heads // len(keys)
    if n == 1:
        # the heads of a group are so many queries at one place: no mask, no expansion
        q = q.view(1, len(keys), groups, dim)
        out = F.scaled_dot_product_attention(q, keys[None], values[None], scale=scale)
        return out.reshape(1, heads * dim)
    q = q.view(n, len(keys), groups, dim).permute(1, 2, 0, 3)
    shape = (len(keys), groups, keys.shape[1], dim)
    out = F.scaled_dot_product_attention(
        q,
        keys[:, None].expand(shape),
        values[:, None].expand(shape),
        attn_mask=mask,
        is_causal=causal,
        scale=scale,
    )
    return out.permute(2, 0, 1, 3).reshape(n, heads * dim)
