"""How much of a model a mode loses: perplexity of the same text, mode by mode."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from agentmem.errors import DataError

CHUNK = 256
"""Rows run at once: bounds the logits of a large vocabulary."""
WINDOW = 512
"""Tokens of one context; the text is cut into these."""


class Chunks(Protocol):
    """A model that runs one context after another."""

    def start(self) -> None:
        """Forget the context."""

    def logits(self, tokens: Tensor) -> Tensor:
        """Logits [n, vocabulary] of tokens [n] that continue the context."""


@dataclass(frozen=True, slots=True)
class Perplexity:
    """`tokens` predicted; `nll` is their mean negative log-likelihood, in nats."""

    tokens: int
    nll: float

    @property
    def value(self) -> float:
        """exp of the mean."""
        return math.exp(self.nll)

    def loss_over(self, base: Perplexity) -> float:
        """Relative to another: 0.01 is one per cent worse."""
        return math.expm1(self.nll - base.nll)


def contexts(tokens: Sequence[int], window: int, bos: int | None) -> list[list[int]]:
    """The text in windows, each with the model's first token in front where it has one."""
    room = window - (bos is not None)
    head = [] if bos is None else [bos]
    cut = [head + list(tokens[i : i + room]) for i in range(0, len(tokens), room)]
    cut = [context for context in cut if len(context) > 1]
    if not cut:
        raise DataError("the text is too short: two tokens are needed at least")
    return cut


def perplexity(
    model: Chunks,
    windows: Sequence[Sequence[int]],
    on_progress: Callable[[int], None] | None = None,
) -> Perplexity:
    """Mean over every token but each window's first; progress is told in tokens run."""
    total, count = 0.0, 0
    for window in windows:
        model.start()
        tokens = torch.tensor(window)
        for start, stop in _chunks(len(tokens)):
            logits = model.logits(tokens[start:stop])
            targets = tokens[start + 1 : stop + 1]
            total += nll(logits[: len(targets)], targets)
            count += len(targets)
            if on_progress is not None:
                on_progress(stop - start)
    return Perplexity(count, total / count)


def nll(logits: Tensor, targets: Tensor) -> float:
    """Summed negative log-likelihood of targets [n] under logits [n, vocabulary], in nats."""
    total = 0.0
    for rows, wanted in zip(torch.split(logits, 16), torch.split(targets, 16), strict=True):
        scores = rows.float()
        chosen = scores.gather(1, wanted[:, None])[:, 0]
        total += float((scores.logsumexp(dim=1) - chosen).double().sum())
    return total


def _chunks(length: int) -> Iterator[tuple[int, int]]:
    for start in range(0, length, CHUNK):
        yield start, min(length, start + CHUNK)
