"""A BERT encoder in float32."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from agentmem.errors import DataError

_Pair = tuple[Tensor, Tensor]
"""Weight and bias."""


@dataclass(frozen=True, slots=True)
class BertLayer:
    """One block: fused query-key-value, output, and the two-layer feed-forward, norms behind."""

    qkv: _Pair
    out: _Pair
    attention_norm: _Pair
    up: _Pair
    down: _Pair
    ffn_norm: _Pair


@dataclass(frozen=True, slots=True)
class Bert:
    """`forward` turns tokens into hidden states; `window` is the longest sequence, in tokens."""

    width: int
    heads: int
    window: int
    eps: float
    words: Tensor
    positions: Tensor
    first_kind: Tensor
    embedding_norm: _Pair
    layers: tuple[BertLayer, ...]

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """tokens [n, m], mask [n, m] true where there is a token: hidden states [n, m, width]."""
        x = F.embedding(tokens, self.words) + self.positions[: tokens.shape[1]] + self.first_kind
        x = self._norm(x, self.embedding_norm)
        seen = None if bool(mask.all()) else mask[:, None, None]
        for layer in self.layers:
            h = self._attention(x, layer, seen)
            x = self._norm(x + F.linear(h, *layer.out), layer.attention_norm)
            h = F.linear(F.gelu(F.linear(x, *layer.up)), *layer.down)
            x = self._norm(x + h, layer.ffn_norm)
        return x

    def _attention(self, x: Tensor, layer: BertLayer, seen: Tensor | None) -> Tensor:
        n, m, width = x.shape
        heads = F.linear(x, *layer.qkv).view(n, m, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return out.transpose(1, 2).reshape(n, m, width)

    def _norm(self, x: Tensor, pair: _Pair) -> Tensor:
        return F.layer_norm(x, (self.width,), *pair, self.eps)


def load_bert(folder: Path) -> Bert:
    """Read a hub folder; DataError when it is no BERT encoder or cannot be read."""
    try:
        raw: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        found = load_file(folder / "model.safetensors")
    except (OSError, ValueError, SafetensorError) as error:
        raise DataError(f"cannot read the encoder in {folder}: {error}") from error
    if raw.get("model_type") != "bert" or raw.get("hidden_act", "gelu") != "gelu":
        raise DataError(f"{folder} is no BERT encoder with gelu: {raw.get('model_type')!r}")
    tensors = {name.removeprefix("bert."): t.float() for name, t in found.items()}
    try:
        return _build(raw, tensors)
    except KeyError as error:
        raise DataError(f"{folder} lacks {error.args[0]!r}") from error


def _build(raw: dict[str, Any], tensors: dict[str, Tensor]) -> Bert:
    def pair(name: str) -> _Pair:
        return tensors[name + ".weight"], tensors[name + ".bias"]

    def layer(at: str) -> BertLayer:
        parts = [pair(f"{at}attention.self.{n}") for n in ("query", "key", "value")]
        return BertLayer(
            qkv=(torch.cat([w for w, _ in parts]), torch.cat([b for _, b in parts])),
            out=pair(at + "attention.output.dense"),
            attention_norm=pair(at + "attention.output.LayerNorm"),
            up=pair(at + "intermediate.dense"),
            down=pair(at + "output.dense"),
            ffn_norm=pair(at + "output.LayerNorm"),
        )

    return Bert(
        width=int(raw["hidden_size"]),
        heads=int(raw["num_attention_heads"]),
        window=int(raw["max_position_embeddings"]),
        eps=float(raw.get("layer_norm_eps", 1e-12)),
        words=tensors["embeddings.word_embeddings.weight"],
        positions=tensors["embeddings.position_embeddings.weight"],
        first_kind=tensors["embeddings.token_type_embeddings.weight"][0],
        embedding_norm=pair("embeddings.LayerNorm"),
        layers=tuple(layer(f"encoder.layer.{i}.") for i in range(int(raw["num_hidden_layers"]))),
    )
