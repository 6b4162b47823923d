"""One sequence on a decoder, without an engine: for oracles, calibration and perplexity."""

from __future__ import annotations

import torch
from torch import Tensor

from agentmem.engine.batch import Batch
from agentmem.engine.kv.layout import BLOCK_SIZE, KVKind, KVPages
from agentmem.engine.models.decoder import Decoder


class Alone:
    """Pages for `positions` tokens of one sequence, filled from the left.

    Block i + 1 holds the i-th `block_size` positions, in all groups.
    """

    def __init__(self, decoder: Decoder, positions: int, kind: KVKind | None = None) -> None:
        self.decoder = decoder
        self.length = 0
        self._blocks = -(-positions // BLOCK_SIZE)
        plain: KVKind = "fp32" if decoder.dtype == torch.float32 else "bf16"
        self.pages = tuple(
            KVPages.empty(spec, self._blocks + 1, BLOCK_SIZE, kind or plain)
            for spec in decoder.groups
        )

    def run(self, tokens: Tensor, last_only: bool = False) -> Tensor:
        """Logits [n, vocab] of tokens [n] behind what was run before, or [1, vocab] of the last."""
        start, stop = self.length, self.length + len(tokens)
        if stop > self._blocks * BLOCK_SIZE:
            raise ValueError(f"{stop} positions do not fit {self._blocks * BLOCK_SIZE}")
        places = torch.arange(start, stop)
        table = torch.arange(1, self._blocks + 1, dtype=torch.int32)[None]
        groups = len(self.pages)
        batch = Batch(
            tokens=tokens.long(),
            positions=places,
            starts=torch.tensor([0, len(tokens)], dtype=torch.int32),
            contexts=torch.tensor([stop], dtype=torch.int32),
            tables=(table,) * groups,
            slots=(places + BLOCK_SIZE,) * groups,
            outputs=torch.arange(len(tokens))[-1 if last_only else 0 :],
        )
        logits = self.decoder.forward(batch, self.pages)
        self.length = stop
        return logits
