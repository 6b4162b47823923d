"""Models that mix Mamba-2 with attention: tokens and a state in, logits and a new state out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from agentmem.engine.config_hybrid import HybridConfig, hybrid_from_folder
from agentmem.engine.hybrid_loader import read_weights
from agentmem.engine.kernels.base import Kernels
from agentmem.engine.kernels.torch_backend import kernels_for
from agentmem.engine.models.attend import KeysValues, attend
from agentmem.engine.models.blocks import Block, HybridWeights
from agentmem.engine.models.mamba2 import MambaState, mix
from agentmem.engine.models.moe import feed, feed_experts
from agentmem.engine.rope import RopeTable


@dataclass(frozen=True, slots=True)
class LayerState:
    """What a layer keeps: either, both or nothing."""

    mamba: MambaState | None = None
    attention: KeysValues | None = None

    @property
    def size_bytes(self) -> int:
        """Of all sequences."""
        return sum(part.size_bytes for part in (self.mamba, self.attention) if part is not None)


@dataclass(frozen=True, slots=True)
class HybridState:
    """All that a model knows of some sequences behind `lengths` tokens each. Never written to."""

    lengths: tuple[int, ...]
    layers: tuple[LayerState, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all layers, kinds and sequences."""
        return sum(layer.size_bytes for layer in self.layers)

    def part(self, sequence: int) -> HybridState:
        """One sequence alone."""
        layers = []
        for layer in self.layers:
            m, a = layer.mamba, layer.attention
            one = slice(sequence, sequence + 1)
            mamba = None if m is None else MambaState(m.conv[one], m.ssm[one])
            layers.append(LayerState(mamba, None if a is None else KeysValues((a.of[sequence],))))
        return HybridState((self.lengths[sequence],), tuple(layers))


def join(states: Sequence[HybridState]) -> HybridState:
    """Sequences of several states side by side, of one model."""
    layers = []
    for each in zip(*(state.layers for state in states), strict=True):
        mamba = [layer.mamba for layer in each if layer.mamba is not None]
        known = [layer.attention for layer in each if layer.attention is not None]
        layers.append(
            LayerState(
                MambaState(torch.cat([m.conv for m in mamba]), torch.cat([m.ssm for m in mamba]))
                if mamba
                else None,
                KeysValues(tuple(t for kv in known for t in kv.of)) if known else None,
            )
        )
    return HybridState(tuple(n for state in states for n in state.lengths), tuple(layers))


class Hybrid:
    """Weights and shape of one model; `dtype` is of activations, the residual stream is float32."""

    def __init__(
        self, config: HybridConfig, weights: HybridWeights, kernels: Kernels, dtype: torch.dtype
    ) -> None:
        self.config, self.weights, self.kernels, self.dtype = config, weights, kernels, dtype
        self._rope: RopeTable | None = None
        if config.attention is not None and config.attention.rope is not None:
            self._rope = RopeTable(config.attention.rope, config.attention.rotated)

    @classmethod
    def load(
        cls, folder: Path, dtype: torch.dtype = torch.float32, kernels: Kernels | None = None
    ) -> Hybrid:
        """Read a safetensors folder; DataError for a model that is not known or not whole."""
        kernels = kernels or kernels_for(False)
        config = hybrid_from_folder(folder)
        return cls(config, read_weights(folder, config, dtype, kernels.pack), kernels, dtype)

    def start(self, sequences: int = 1) -> HybridState:
        """The state of so many sequences in front of their first tokens."""
        mamba, attention = self.config.mamba, self.config.attention
        layers = []
        for layer in self.config.layers:
            own = LayerState()
            if layer.mixing in ("mamba", "both"):
                own = LayerState(MambaState.zeros(mamba, sequences, self.dtype))
            if layer.mixing in ("attention", "both"):
                assert attention is not None
                own = LayerState(own.mamba, KeysValues.empty(attention, sequences, self.dtype))
            layers.append(own)
        return HybridState((0,) * sequences, tuple(layers))

    def run(
        self,
        tokens: Tensor,
        state: HybridState | None = None,
        starts: Sequence[int] | None = None,
        outputs: Tensor | None = None,
    ) -> tuple[Tensor, HybridState]:
        """Logits [m, vocab] of tokens [n] behind a state, and the state behind them.

        Sequence i is tokens starts[i] to starts[i + 1], by default all are of one; `outputs` [m]
        are the rows to give logits of, by default all.
        """
        state = state or self.start()
        starts = (0, len(tokens)) if starts is None else tuple(starts)
        _check(starts, len(tokens), len(state.lengths))
        x = self.kernels.embed(tokens.long(), self.weights.embedding).float()
        x = x * self.config.scales.embedding
        rotations = self._rotations(starts, state.lengths)
        layers = []
        for block, own in zip(self.weights.blocks, state.layers, strict=True):
            new = own
            if block.mixer_norm is not None:
                added, new = self._mix(
                    self._norm(x, block.mixer_norm), block, own, starts, rotations
                )
                x = x + added
            layers.append(new)
            if block.ffn_norm is not None:
                x = x + self._feed(self._norm(x, block.ffn_norm), block)
        if outputs is not None:
            x = x[outputs]
        logits = self.kernels.linear(self._norm(x, self.weights.norm), self.weights.head)
        if self.config.scales.logits != 1.0:
            logits = logits * self.config.scales.logits
        spans = zip(state.lengths, starts, starts[1:], strict=False)
        lengths = tuple(known + stop - start for known, start, stop in spans)
        return logits, HybridState(lengths, tuple(layers))

    def _mix(
        self,
        h: Tensor,
        block: Block,
        own: LayerState,
        starts: Sequence[int],
        rotations: Tensor | None,
    ) -> tuple[Tensor, LayerState]:
        """What the mixer adds, float32 [n, width]; Mamba and attention side by side add up."""
        scales, config = self.config.scales, self.config
        mamba, attention = own.mamba, own.attention
        added = torch.zeros(h.shape)
        if block.mamba is not None:
            assert mamba is not None
            out, mamba = mix(h, starts, config.mamba, block.mamba, mamba, self.kernels)
            added += out * scales.mamba_out
        if block.attention is not None:
            assert attention is not None
            assert config.attention is not None
            seen = h if scales.attention_in == 1.0 else h * scales.attention_in
            out, attention = attend(
                seen, starts, rotations, config.attention, block.attention, attention, self.kernels
            )
            added += out * scales.attention_out
        return added, LayerState(mamba, attention)

    def _feed(self, h: Tensor, block: Block) -> Tensor:
        if block.experts is not None:
            assert self.config.experts is not None
            out = feed_experts(h, block.experts, self.config.experts, self.kernels)
        else:
            assert block.ffn is not None
            out = feed(h, block.ffn, self.kernels)
        return out.float() * self.config.scales.ffn_out

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return self.kernels.norm(x, weight, self.config.norm_eps, self.dtype)

    def _rotations(self, starts: Sequence[int], known: Sequence[int]) -> Tensor | None:
        if self._rope is None:
            return None
        spans = zip(known, starts, starts[1:], strict=False)
        places = [torch.arange(at, at + stop - start) for at, start, stop in spans]
        return self._rope.at(torch.cat(places))


def _check(starts: Sequence[int], rows: int, sequences: int) -> None:
    whole = len(starts) == sequences + 1 and starts[0] == 0 and starts[-1] == rows
    if not whole or list(starts) != sorted(starts):
        raise ValueError(f"starts {tuple(starts)} do not cut {rows} rows for {sequences} sequences")
