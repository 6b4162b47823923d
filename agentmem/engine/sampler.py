"""Choosing the next token from logits."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from agentmem.engine.request import Sampling, TokenConstraint

_GREEDY_BELOW = 1e-5


class ConstraintDeadEndError(Exception):
    """A constraint allows no token at all: the text can only end here."""


class Sampler:
    """One request's way of choosing; its random numbers depend on nothing but its own seed."""

    def __init__(self, sampling: Sampling, constraint: TokenConstraint | None = None) -> None:
        self._sampling = sampling
        self._constraint = constraint
        self._greedy = sampling.temperature < _GREEDY_BELOW
        self._random = torch.Generator()
        if sampling.seed is None:
            self._random.seed()
        else:
            self._random.manual_seed(sampling.seed & (2**63 - 1))

    def choose(self, logits: Tensor) -> int:
        """Next token of logits [vocab]; raises ConstraintDeadEndError when none is allowed."""
        logits = self._constrained(logits)
        if self._greedy:
            return int(logits.argmax())
        scores = logits.float() / self._sampling.temperature
        scores = keep_top_p(keep_top_k(scores, self._sampling.top_k), self._sampling.top_p)
        return int(torch.multinomial(scores.softmax(-1), 1, generator=self._random))

    def advance(self, token: int) -> bool:
        """Tell the constraint; True when the text is complete."""
        return self._constraint is not None and bool(self._constraint.advance(token))

    def _constrained(self, logits: Tensor) -> Tensor:
        allowed = self._constraint.allowed() if self._constraint is not None else None
        if allowed is None:
            return logits
        mask = torch.as_tensor(allowed, dtype=torch.bool)[: len(logits)]
        if not bool(mask.any()):
            raise ConstraintDeadEndError
        # a mask narrower than the logits forbids what lies behind it
        mask = F.pad(mask, (0, len(logits) - len(mask)))
        return logits.masked_fill(~mask, -torch.inf)


def keep_top_k(scores: Tensor, k: int) -> Tensor:
    """All but the k best scores become -inf; k of 0 keeps all."""
    if k <= 0 or k >= len(scores):
        return scores
    smallest = torch.topk(scores, k).values[-1]
    return scores.masked_fill(scores < smallest, -torch.inf)


def keep_top_p(scores: Tensor, p: float) -> Tensor:
    """The fewest best tokens whose probability reaches p stay; at least one does."""
    if p >= 1.0:
        return scores
    ordered, order = scores.sort(descending=True)
    probability = ordered.softmax(-1)
    before = probability.cumsum(-1) - probability
    drop = before >= p
    drop[0] = False
    return scores.masked_fill(torch.zeros_like(drop).scatter(0, order, drop), -torch.inf)
