"""Choosing the next token from logits."""

from __future__ import annotations

import secrets
from hashlib import blake2b
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn import functional as F

from agentmem.engine.request import Sampling, TokenConstraint, TokenScores

_GREEDY_BELOW = 1e-5
_CANDIDATES = 256
"""Tokens looked at before all of a vocabulary is sorted."""


class ConstraintDeadEndError(Exception):
    """A constraint allows no token at all: the text can only end here."""


@runtime_checkable
class ForeseeingConstraint(Protocol):
    """What a constraint may offer so that fewer drafts are wrong; neither method changes it."""

    def forced(self) -> list[int]:
        """Tokens that must come next."""

    def fitting(self, tokens: list[int]) -> int:
        """How many of these tokens may come next."""


class Sampler:
    """One request's way of choosing.

    The random number of a token depends on the request's seed and the token's index alone: the
    same text comes out whatever ran beside it, after a preemption, and with drafts or without. A
    draft is accepted when it is what would have been drawn, which has the draft's own
    probability, so that the distribution is that of drawing one token at a time.
    """

    def __init__(self, sampling: Sampling, constraint: TokenConstraint | None = None) -> None:
        self._sampling = sampling
        self._constraint = constraint
        given: object = constraint
        self._foreseeing = given if isinstance(given, ForeseeingConstraint) else None
        self._seed = secrets.randbits(64) if sampling.seed is None else sampling.seed

    @property
    def greedy(self) -> bool:
        """The best token is taken, without chance."""
        return self._sampling.temperature < _GREEDY_BELOW

    def choose(self, logits: Tensor, index: int, best: int | None = None) -> int:
        """Token number `index` of an answer, of logits [vocab]; `best` is their argmax, if known.

        Raises ConstraintDeadEndError when none is allowed.
        """
        if self.greedy and self._constraint is None:
            return int(logits.argmax()) if best is None else best
        logits = self._constrained(logits)
        if self.greedy:
            return int(logits.argmax())
        s = self._sampling
        tokens, weights = candidates(logits.float() / s.temperature, s.top_k, s.top_p)
        at = draw(weights, uniform(self._seed, index))
        return at if tokens is None else int(tokens[at])

    def advance(self, token: int) -> bool:
        """Tell the constraint; True when the text is complete."""
        return self._constraint is not None and bool(self._constraint.advance(token))

    def forced(self) -> list[int]:
        """Tokens that a constraint leaves no choice about, where it can tell."""
        return [] if self._foreseeing is None else self._foreseeing.forced()

    def fitting(self, drafts: list[int]) -> list[int]:
        """Drafts up to the first that a constraint forbids, where it can tell."""
        if not drafts or self._foreseeing is None:
            return drafts
        return drafts[: self._foreseeing.fitting(drafts)]

    def scores(self, logits: Tensor, token: int) -> TokenScores | None:
        """Log-probabilities under the model itself (no temperature), where they are wanted."""
        count = self._sampling.logprobs
        if count is None:
            return None
        logs = logits.float().log_softmax(-1)
        if not count:
            return TokenScores(float(logs[token]))
        best = logs.topk(min(count, len(logs)))
        top = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return TokenScores(float(logs[token]), tuple(top))

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


def uniform(seed: int, index: int) -> float:
    """A number in [0, 1) that depends on these two alone."""
    key = (seed & (2**64 - 1)).to_bytes(8, "little") + index.to_bytes(8, "little")
    return (int.from_bytes(blake2b(key, digest_size=8).digest(), "little") >> 11) * 2.0**-53


def draw(weights: Tensor, u: float) -> int:
    """The index at the part `u` of the weights' sum; one of positive weight."""
    sums = weights.double().cumsum(0)
    at = torch.searchsorted(sums, sums[-1:] * u, right=True)
    return min(int(at), len(weights) - 1)


def candidates(scores: Tensor, k: int, p: float) -> tuple[Tensor | None, Tensor]:
    """Tokens that may be drawn and their weights; None for the tokens stands for all in order."""
    if p >= 1.0 and not 0 < k < len(scores):
        return None, scores.softmax(-1)
    if 0 < k < len(scores):
        best = scores.topk(k)
        return best.indices, keep_top_p(best.values, p).softmax(-1)
    best = scores.topk(min(_CANDIDATES, len(scores)))
    shares = (best.values - scores.logsumexp(-1)).exp()
    before = shares.cumsum(-1) - shares
    if float(before[-1] + shares[-1]) < p and len(shares) < len(scores):
        return None, keep_top_p(scores, p).softmax(-1)
    keep = before < p
    keep[0] = True
    return best.indices, shares * keep


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
