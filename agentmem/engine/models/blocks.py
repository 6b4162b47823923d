"""The weights of a hybrid, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from agentmem.engine.kernels.weights import Weight
from agentmem.engine.models.attend import AttentionWeights
from agentmem.engine.models.mamba2 import MambaWeights
from agentmem.engine.models.moe import Experts, FeedForward


@dataclass(frozen=True, slots=True)
class Block:
    """One layer; norms are float32, and missing together with what stands behind them."""

    mixer_norm: Tensor | None = None
    mamba: MambaWeights | None = None
    attention: AttentionWeights | None = None
    ffn_norm: Tensor | None = None
    ffn: FeedForward | None = None
    experts: Experts | None = None


@dataclass(frozen=True, slots=True)
class HybridWeights:
    """`head` is the embedding itself where the model ties them."""

    embedding: Weight
    blocks: tuple[Block, ...]
    norm: Tensor
    head: Weight
