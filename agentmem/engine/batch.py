"""One forward pass: rows of tokens from several sequences, and where their state lies."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of sequence `i` are `starts[i]:starts[i + 1]`, at consecutive positions.

    `n` rows, `s` sequences, `m` rows whose logits are wanted. After the pass, sequence `i` holds
    `contexts[i]` positions. `tables[g]` gives for group `g` the block of each `block_size`
    positions, NULL_BLOCK where nothing is kept (behind a sliding window). `slots[g]` is where a
    row's key and value go: block * block_size + offset.
    """

    tokens: Tensor
    """int64 [n]"""
    positions: Tensor
    """int64 [n]"""
    starts: Tensor
    """int32 [s + 1]"""
    contexts: Tensor
    """int32 [s]"""
    tables: tuple[Tensor, ...]
    """Each int32 [s, blocks of the longest]."""
    slots: tuple[Tensor, ...]
    """Each int64 [n]."""
    outputs: Tensor
    """int64 [m]"""

    @property
    def rows(self) -> int:
        """Tokens run in this pass."""
        return len(self.tokens)

    @property
    def sequences(self) -> int:
        """Sequences in this pass."""
        return len(self.contexts)
