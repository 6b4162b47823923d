"""From a safetensors folder to the weights of a hybrid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from agentmem.engine.config_hybrid import HybridConfig, Layer
from agentmem.engine.kernels.weights import Weight, WeightFormat
from agentmem.engine.models.attend import AttentionWeights
from agentmem.engine.models.blocks import Block, HybridWeights
from agentmem.engine.models.mamba2 import MambaWeights
from agentmem.engine.models.moe import Experts, FeedForward
from agentmem.engine.quant import checkpoints
from agentmem.engine.quant.formats import join, quantise
from agentmem.engine.sources import FolderSource
from agentmem.errors import DataError


@dataclass(frozen=True, slots=True)
class _Names:
    """Where a family keeps its parts; all but the first three stand behind a layer's own name."""

    top: str
    embedding: str
    norm: str
    mixer_norm: str
    mamba: str
    attention: str
    ffn_norm: str
    ffn: str
    experts: str


_BACKBONE = _Names(
    "backbone", "embeddings", "norm_f", "norm", "mixer", "mixer", "norm", "mixer", "mixer"
)
_BAMBA = _Names(
    "model",
    "embed_tokens",
    "final_layernorm",
    "input_layernorm",
    "mamba",
    "self_attn",
    "pre_ff_layernorm",
    "feed_forward",
    "",
)
_GRANITE = replace(
    _BAMBA,
    norm="norm",
    ffn_norm="post_attention_layernorm",
    ffn="shared_mlp",
    experts="block_sparse_moe",
)
_NAMES = {
    "mamba2": _BACKBONE,
    "nemotron_h": _BACKBONE,
    "bamba": _BAMBA,
    "falcon_h1": _BAMBA,
    "granitemoehybrid": _GRANITE,
}


def read_weights(
    folder: Path, config: HybridConfig, dtype: torch.dtype, pack: Callable[[Weight], Weight]
) -> HybridWeights:
    """All weights of a model; DataError when one is missing, misshapen or left over."""
    if dtype not in _FORMATS:
        raise DataError(f"hybrids run in float32 or bfloat16, not in {dtype}")
    source = _Folder(folder, config.arch)
    weights = _Builder(config, source, dtype, pack).weights()
    if left := source.unused():
        raise DataError(f"{folder} holds tensors this engine does not know: {left[:3]}")
    return weights


_FORMATS: dict[torch.dtype, WeightFormat] = {torch.float32: "fp32", torch.bfloat16: "bf16"}
_ENDS = ("input", "output")


class _Folder(FolderSource):
    def unused(self) -> list[str]:
        """Names never taken, but for heads that guess further tokens, and tables of positions."""
        left = (n for n in self._left if not n.startswith("mtp.") and "rotary_emb" not in n)
        return sorted(n for n in left if not n.endswith(checkpoints.IGNORED))


class _Builder:
    def __init__(
        self,
        config: HybridConfig,
        source: FolderSource,
        dtype: torch.dtype,
        pack: Callable[[Weight], Weight],
    ) -> None:
        self._c, self._source, self._dtype, self._pack = config, source, dtype, pack
        self._n = _NAMES[config.arch]

    def weights(self) -> HybridWeights:
        """Everything, in the activation's dtype but for the small float32 parts."""
        c, n = self._c, self._n
        shape = (c.vocab_size, c.width)
        embedding = self._pack(self._matrix(f"{n.top}.{n.embedding}", *shape))
        head = embedding
        if self._source.has("lm_head.weight"):
            head = self._pack(self._matrix("lm_head", *shape))
        return HybridWeights(
            embedding=embedding,
            blocks=tuple(self._block(f"{n.top}.layers.{i}.", x) for i, x in enumerate(c.layers)),
            norm=self._vector(f"{n.top}.{n.norm}.weight", c.width),
            head=head,
        )

    def _block(self, at: str, layer: Layer) -> Block:
        n, width = self._n, self._c.width
        mixed, fed = layer.mixing != "none", layer.feeding != "none"
        mamba = layer.mixing in ("mamba", "both")
        attention = layer.mixing in ("attention", "both")
        return Block(
            mixer_norm=self._vector(f"{at}{n.mixer_norm}.weight", width) if mixed else None,
            mamba=self._mamba(f"{at}{n.mamba}.") if mamba else None,
            attention=self._attention(f"{at}{n.attention}.") if attention else None,
            ffn_norm=self._vector(f"{at}{n.ffn_norm}.weight", width) if fed else None,
            ffn=self._ffn(f"{at}{n.ffn}.") if layer.feeding == "dense" else None,
            experts=self._experts(at) if layer.feeding == "experts" else None,
        )

    def _mamba(self, at: str) -> MambaWeights:
        m, width = self._c.mamba, self._c.width
        conv = self._take(at + "conv1d.weight", (m.channels, 1, m.kernel))
        parts = self._parts_scale()
        into_bias = self._bias(at + "in_proj")
        if parts is not None and into_bias is not None:
            into_bias = into_bias * parts
        return MambaWeights(
            into=self._pack(self._matrix(at + "in_proj", m.inner + m.channels + m.heads, width)),
            into_bias=into_bias,
            into_scale=None if parts is None else parts * self._c.scales.mamba_in,
            conv=conv[:, 0].T.contiguous(),
            conv_bias=self._vector(at + "conv1d.bias", m.channels) if m.conv_bias else None,
            dt_bias=self._vector(at + "dt_bias", m.heads),
            decay=-self._vector(at + "A_log", m.heads).exp(),
            skip=self._vector(at + "D", m.heads),
            norm=self._vector(at + "norm.weight", m.inner) if m.normed else None,
            out=self._pack(self._matrix(at + "out_proj", width, m.inner)),
            out_bias=self._bias(at + "out_proj"),
        )

    def _parts_scale(self) -> Tensor | None:
        """Factors on all that an input projection gives, its bias included."""
        scales, m = self._c.scales, self._c.mamba
        if not scales.mamba_parts:
            return None
        width = m.groups * m.state
        sizes = torch.tensor([m.inner, m.inner, width, width, m.heads])
        return torch.tensor(scales.mamba_parts).repeat_interleave(sizes)

    def _attention(self, at: str) -> AttentionWeights:
        a, width = self._c.attention, self._c.width
        assert a is not None
        sizes = {"q_proj": a.heads, "k_proj": a.kv_heads, "v_proj": a.kv_heads}
        parts = [self._matrix(at + n, heads * a.head_dim, width) for n, heads in sizes.items()]
        biases = [b for b in (self._bias(at + n) for n in sizes) if b is not None]
        return AttentionWeights(
            qkv=self._pack(join(parts)),
            qkv_bias=torch.cat(biases) if biases else None,
            out=self._pack(self._matrix(at + "o_proj", width, a.heads * a.head_dim)),
            out_bias=self._bias(at + "o_proj"),
        )

    def _ffn(self, at: str) -> FeedForward:
        """Gate and up in one matrix, or in two, or no gate at all."""
        gated = self._c.activation == "silu"
        if self._source.has(at + "input_linear.weight"):
            up, up_bias = [self._matrix(at + "input_linear")], None
            down, down_bias = self._matrix(at + "output_linear"), None
        else:
            names = ("gate_proj", "up_proj") if gated else ("up_proj",)
            up = [self._matrix(at + name) for name in names]
            biases = [b for b in (self._bias(at + name) for name in names) if b is not None]
            up_bias = torch.cat(biases) if biases else None
            down, down_bias = self._matrix(at + "down_proj"), self._bias(at + "down_proj")
        return self._fed(up, up_bias, down, down_bias, at)

    def _fed(
        self,
        up: list[Weight],
        up_bias: Tensor | None,
        down: Weight,
        down_bias: Tensor | None,
        at: str,
    ) -> FeedForward:
        gated = self._c.activation == "silu"
        joined = join(up)
        if joined.rows != down.columns * (2 if gated else 1) or joined.columns != down.rows:
            raise DataError(f"the feed-forward {at!r} does not fit together")
        scale = self._c.scales.ffn_gate
        return FeedForward(self._pack(joined), up_bias, self._pack(down), down_bias, gated, scale)

    def _experts(self, layer: str) -> Experts:
        """Granite keeps the shared one beside the others, under the name of a dense block."""
        shape, width = self._c.experts, self._c.width
        assert shape is not None
        at = f"{layer}{self._n.experts}."
        packed = self._source.has(at + "router.layer.weight")
        router = at + ("router.layer" if packed else "gate")
        correction = at + "gate.e_score_correction_bias"
        corrected = self._source.has(correction)
        shared = f"{layer}{self._n.ffn}." if packed else at + "shared_experts."
        return Experts(
            router=self._take(router + ".weight", (shape.count, width)),
            router_bias=self._vector(correction, shape.count) if corrected else None,
            each=self._stacked(at) if packed else self._listed(at + "experts."),
            into=self._latent(at + "fc1_latent_proj"),
            back=self._latent(at + "fc2_latent_proj"),
            shared=self._ffn(shared),
        )

    def _stacked(self, at: str) -> tuple[FeedForward, ...]:
        """Experts whose matrices lie in one tensor [experts, out, in]."""
        assert self._c.experts is not None
        up, down = (self._source.take(f"{at}{n}_linear.weight", self._dtype) for n in _ENDS)
        for tensor in (up, down):
            if tensor.dim() != 3 or len(tensor) != self._c.experts.count:
                found, wanted = len(tensor), self._c.experts.count
                raise DataError(f"{at!r} holds {found} experts' matrices, not {wanted}")
        return tuple(
            self._fed([self._weight(u)], None, self._weight(d), None, at)
            for u, d in zip(up, down, strict=True)
        )

    def _listed(self, at: str) -> tuple[FeedForward, ...]:
        assert self._c.experts is not None
        return tuple(self._ffn(f"{at}{i}.") for i in range(self._c.experts.count))

    def _latent(self, name: str) -> tuple[Weight, Tensor | None] | None:
        if not self._source.has(name + ".weight"):
            return None
        return self._pack(self._matrix(name)), self._bias(name)

    def _matrix(self, name: str, rows: int | None = None, columns: int | None = None) -> Weight:
        tensor = self._source.take(name + ".weight", self._dtype)
        if tensor.dim() != 2:
            raise DataError(f"tensor {name!r} is {tuple(tensor.shape)}, no matrix")
        found = tuple(tensor.shape)
        _check(name + ".weight", tensor, (rows or found[0], columns or found[1]))
        return self._weight(tensor)

    def _weight(self, tensor: Tensor) -> Weight:
        return quantise(tensor, _FORMATS[self._dtype])

    def _bias(self, name: str) -> Tensor | None:
        if not self._source.has(name + ".bias"):
            return None
        return self._source.take(name + ".bias", self._dtype)

    def _vector(self, name: str, length: int) -> Tensor:
        return self._take(name, (length,))

    def _take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        tensor = self._source.take(name, torch.float32)
        _check(name, tensor, shape)
        return tensor


def _check(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise DataError(f"tensor {name!r} is {tuple(tensor.shape)}, not {shape}")
