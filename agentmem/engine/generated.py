"""What the Python API gives back: answers, pieces of answers, and what they cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agentmem.engine.request import Delta, FinishReason, RequestRecord, TokenScores


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of answer `index` while it is generated; the last has a `finish_reason`."""

    text: str
    tokens: tuple[int, ...] = ()
    index: int = 0
    finish_reason: FinishReason | None = None
    scores: tuple[TokenScores, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole answer. `scores` are there where log-probabilities were asked for."""

    text: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason
    scores: tuple[TokenScores, ...] = ()

    @property
    def logprob(self) -> float | None:
        """Log-probability of the whole; None where none was asked for."""
        return sum(s.logprob for s in self.scores) if self.scores else None


@dataclass(frozen=True, slots=True)
class Generated:
    """The answers to one prompt, and a record of each engine request that they took."""

    answers: tuple[Answer, ...]
    records: tuple[RequestRecord, ...]

    @property
    def text(self) -> str:
        """Text of the first answer."""
        return self.answers[0].text

    @property
    def tokens(self) -> tuple[int, ...]:
        """Tokens of the first answer."""
        return self.answers[0].tokens

    @property
    def finish_reason(self) -> FinishReason:
        """Why the first answer ended."""
        return self.answers[0].finish_reason

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that the cache served, over all engine requests."""
        return sum(record.cached_tokens for record in self.records)

    @property
    def computed_tokens(self) -> int:
        """Prompt tokens that were computed, over all engine requests."""
        return sum(record.uncached_tokens for record in self.records)


def joined(pieces: Iterable[Piece]) -> Answer:
    """The answer that pieces of one index make."""
    kept = list(pieces)
    return Answer(
        "".join(piece.text for piece in kept),
        tuple(token for piece in kept for token in piece.tokens),
        kept[-1].finish_reason or "abort",
        tuple(score for piece in kept for score in piece.scores),
    )


def piece_of(index: int, delta: Delta) -> Piece:
    """A delta of the request at `index`."""
    return Piece(delta.text, delta.tokens, index, delta.finish_reason, delta.scores)
