"""A model's own text, to calibrate it where no other text is at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from agentmem.engine.batch import Batch
from agentmem.engine.kv.layout import BLOCK_SIZE, KVPages
from agentmem.engine.models.decoder import Decoder

STARTS = (
    "The",
    "On Monday morning she",
    "User: What do you remember about me?\nAssistant:",
    '{"facts": [',
    "def ",
    "1. ",
    "Question:",
    "Dear Anna,\n\n",
)
"""Beginnings of the kinds of text that a memory system sends."""


def own_text(
    decoder: Decoder,
    starts: Sequence[Sequence[int]],
    length: int,
    banned: Sequence[int] = (),
    on_progress: Callable[[int], None] | None = None,
) -> list[list[int]]:
    """One text of `length` tokens behind each start, sampled at temperature 1 from seed 0.

    The sequences advance side by side; `banned` tokens (the ends of text) are never drawn.
    """
    lanes = _Lanes(decoder, len(starts), length)
    draw = torch.Generator().manual_seed(0)
    texts: list[list[int]] = [list(start[:length]) for start in starts]
    for position in range(length - 1):
        tokens = torch.tensor([text[position] for text in texts])
        scores = lanes.step(tokens, position).float()
        scores[:, list(banned)] = -torch.inf
        drawn = torch.multinomial(scores.softmax(dim=1), 1, generator=draw)[:, 0].tolist()
        for text, token in zip(texts, drawn, strict=True):
            if len(text) == position + 1:
                text.append(token)
        if on_progress is not None:
            on_progress(len(texts))
    return texts


class _Lanes:
    """Sequences of one length on a decoder, a token each at a time."""

    def __init__(self, decoder: Decoder, count: int, length: int) -> None:
        self._decoder = decoder
        self._blocks = -(-length // BLOCK_SIZE)
        self.pages = tuple(
            KVPages.empty(spec, count * self._blocks + 1, BLOCK_SIZE, "bf16")
            for spec in decoder.groups
        )
        blocks = torch.arange(1, count * self._blocks + 1, dtype=torch.int32)
        self._table = blocks.view(count, self._blocks)

    def step(self, tokens: Tensor, position: int) -> Tensor:
        """Logits [n, vocab] of the tokens [n] at a position."""
        count = len(tokens)
        block = self._table[:, position // BLOCK_SIZE].long()
        slots = block * BLOCK_SIZE + position % BLOCK_SIZE
        groups = len(self.pages)
        batch = Batch(
            tokens=tokens,
            positions=torch.full((count,), position),
            starts=torch.arange(count + 1, dtype=torch.int32),
            contexts=torch.full((count,), position + 1, dtype=torch.int32),
            tables=(self._table,) * groups,
            slots=(slots,) * groups,
            outputs=torch.arange(count),
        )
        return self._decoder.forward(batch, self.pages)
