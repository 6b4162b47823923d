"""Models that mix Mamba-2 with attention: tokens and a state in, logits and a new state out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from agentmem.engine.config_hybrid import HybridConfig, hybrid_from_folder
from agentmem.engine.hybrid_loader import read_weights
from agentmem.engine.kernels.base import Kernels
from agentmem.engine.kernels.torch_backend import kernels_for
from agentmem.engine.kv.layout import GroupSpec
from agentmem.engine.models.attend import KeysValues, attend
from agentmem.engine.models.blocks import Block, HybridWeights
from agentmem.engine.models.mamba2 import NO_GUESSES, MambaState, MambaTrail, mix
from agentmem.engine.models.moe import feed, feed_experts
from agentmem.engine.rope import RopeTable
from agentmem.engine.state.layout import LayerStates


@dataclass(frozen=True, slots=True)
class LayerState:
    """What a layer keeps: either, both or nothing."""

    mamba: MambaState | None = None
    attention: KeysValues | None = None
    trails: Mapping[int, MambaTrail] = field(default_factory=dict)
    """Of sequences whose last tokens are guesses: how to take them back."""

    @property
    def size_bytes(self) -> int:
        """Of all sequences, without trails."""
        return sum(part.size_bytes for part in (self.mamba, self.attention) if part is not None)

    def part(self, sequence: int, length: int, dropped: int) -> LayerState:
        """One sequence alone, cut to a length; of its guesses, the last `dropped` are gone."""
        m, a, trail = self.mamba, self.attention, self.trails.get(sequence)
        one = slice(sequence, sequence + 1)
        mamba = None if m is None else MambaState(m.conv[one], m.ssm[one])
        if dropped and trail is not None:
            mamba = trail.behind(len(trail.ssm) - 1 - dropped)
        return LayerState(mamba, None if a is None else a.cut(sequence, length))


@dataclass(frozen=True, slots=True)
class HybridState:
    """All that a model knows of some sequences behind `lengths` tokens each. Never written to."""

    lengths: tuple[int, ...]
    layers: tuple[LayerState, ...]
    guesses: Mapping[int, int] = field(default_factory=dict)
    """By sequence: how many of its last tokens can be taken back."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all layers, kinds and sequences."""
        return sum(layer.size_bytes for layer in self.layers)

    def part(self, sequence: int, dropped: int = 0) -> HybridState:
        """One sequence alone, without the last `dropped` of its guesses.

        Raises ValueError for more than the last pass was told to be guesses.
        """
        if not 0 <= dropped <= self.guesses.get(sequence, 0):
            raise ValueError(f"{dropped} tokens cannot be taken back")
        length = self.lengths[sequence] - dropped
        parts = tuple(layer.part(sequence, length, dropped) for layer in self.layers)
        return HybridState((length,), parts)


def join(states: Sequence[HybridState]) -> HybridState:
    """Sequences of several states side by side, of one model; their guesses are settled."""
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

    def state_layers(self, guesses: int = 0) -> tuple[LayerStates, ...]:
        """What the Mamba layers keep of one sequence, with room for so many guesses."""
        kinds = MambaState.kinds(self.config.mamba, self.dtype, guesses)
        mixing = (layer.mixing for layer in self.config.layers)
        return tuple(LayerStates(i, kinds) for i, m in enumerate(mixing) if m in ("mamba", "both"))

    def groups(self) -> tuple[GroupSpec, ...]:
        """The layers that keep keys and values: one group, or none."""
        mixing = (layer.mixing for layer in self.config.layers)
        layers = tuple(i for i, m in enumerate(mixing) if m in ("attention", "both"))
        if not layers:
            return ()
        assert self.config.attention is not None
        return (GroupSpec(layers, self.config.attention.kv_heads, self.config.attention.head_dim),)

    def run(
        self,
        tokens: Tensor,
        state: HybridState | None = None,
        starts: Sequence[int] | None = None,
        outputs: Tensor | None = None,
        guesses: Mapping[int, int] = NO_GUESSES,
    ) -> tuple[Tensor, HybridState]:
        """Logits [m, vocab] of tokens [n] behind a state, and the state behind them.

        Sequence i is tokens starts[i] to starts[i + 1], by default all are of one; `outputs` [m]
        are the rows to give logits of, by default all. The last `guesses[i]` tokens of sequence i,
        fewer than it has here, can be taken back by `HybridState.part`.
        """
        state = state or self.start()
        starts = (0, len(tokens)) if starts is None else tuple(starts)
        _check(starts, len(tokens), len(state.lengths), guesses)
        x = self.kernels.embed(tokens.long(), self.weights.embedding).float()
        x = x * self.config.scales.embedding
        rotations = self._rotations(starts, state.lengths)
        layers = []
        for block, own in zip(self.weights.blocks, state.layers, strict=True):
            new = own
            if block.mixer_norm is not None:
                added, new = self._mix(
                    self._norm(x, block.mixer_norm), block, own, starts, rotations, guesses
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
        return logits, HybridState(lengths, tuple(layers), dict(guesses))

    def _mix(
        self,
        h: Tensor,
        block: Block,
        own: LayerState,
        starts: Sequence[int],
        rotations: Tensor | None,
        guesses: Mapping[int, int],
    ) -> tuple[Tensor, LayerState]:
        """What the mixer adds, float32 [n, width]; Mamba and attention side by side add up."""
        scales, config = self.config.scales, self.config
        mamba, attention = own.mamba, own.attention
        trails: Mapping[int, MambaTrail] = {}
        added = torch.zeros(h.shape)
        if block.mamba is not None:
            assert mamba is not None
            out, mamba, trails = mix(
                h, starts, config.mamba, block.mamba, mamba, self.kernels, guesses
            )
            added += out * scales.mamba_out
        if block.attention is not None:
            assert attention is not None
            assert config.attention is not None
            seen = h if scales.attention_in == 1.0 else h * scales.attention_in
            out, attention = attend(
                seen, starts, rotations, config.attention, block.attention, attention, self.kernels
            )
            added += out * scales.attention_out
        return added, LayerState(mamba, attention, trails)

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


def _check(starts: Sequence[int], rows: int, sequences: int, guesses: Mapping[int, int]) -> None:
    whole = len(starts) == sequences + 1 and starts[0] == 0 and starts[-1] == rows
    if not whole or list(starts) != sorted(starts):
        raise ValueError(f"starts {tuple(starts)} do not cut {rows} rows for {sequences} sequences")
    for i, guessed in guesses.items():
        if not 0 <= guessed < starts[i + 1] - starts[i]:
            raise ValueError(f"sequence {i} cannot be {guessed} guesses")
