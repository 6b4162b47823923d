"""What a request to the engine is, and what the engine says about it afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

FinishReason = Literal["stop", "length", "tool_calls", "abort"]
TrafficClass = Literal["interactive", "background"]


class TokenConstraint(Protocol):
    """A grammar over tokens, advanced one token at a time (see constraints.py)."""

    def allowed(self) -> Any:
        """Boolean mask over the vocabulary, numpy [vocab], or None when everything is allowed."""

    def advance(self, token: int) -> bool:
        """Consume a token; True when the text is complete and generation must stop."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """temperature 0 is greedy; `max_tokens` None takes the engine's default, within the window."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    """How many alternatives to report per token; None for no log-probabilities at all."""


@dataclass(frozen=True, slots=True)
class Request:
    """One sequence to generate. `n > 1` and prompt lists become several of these (same session)."""

    request_id: str
    prompt: tuple[int, ...]
    """Token ids."""
    sampling: Sampling = field(default_factory=Sampling)
    session_id: str | None = None
    tenant: str | None = None
    traffic_class: TrafficClass = "interactive"
    constraint: TokenConstraint | None = None
    forced: tuple[int, ...] | None = None
    """Tokens to produce whatever the model says: all the work is done, nothing is chosen."""
    drafts: bool = True
    """Drafts from the prompt may be tried, where the engine has them on."""
    reuse: bool = True
    """Cached state may serve this request; what it computes is kept in any case."""


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Log-probabilities at one generated token: its own, and the best alternatives."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    """(token, log-probability), best first."""


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of output. The last one of a request carries `finish_reason`."""

    text: str
    tokens: tuple[int, ...] = ()
    finish_reason: FinishReason | None = None
    scores: tuple[TokenScores, ...] = ()
    """One for each of `tokens`, where the request asked for log-probabilities."""


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """The engine's own account of one finished request; becomes `usage.agentmem`."""

    request_id: str
    session_id: str | None
    tenant: str | None
    traffic_class: TrafficClass
    queue_s: float
    prefill_s: float
    decode_s: float
    ttft_s: float | None
    uncached_tokens: int
    cached_tokens: int
    generated_tokens: int
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    state_bytes: int | None = None
    step_share_s: float | None = None
    cpu_s: float | None = None
    finish_reason: FinishReason | None = None
    preemptions: int = 0
    """Times its state was given up for others and computed again."""
    recomputed_tokens: int = 0
    """Tokens run again because of that; in no other count."""
    read_bytes: float | None = None
    """Its modelled share of the bytes that its steps read (weights shared, own keys and values)."""
    operations: float | None = None
    """Modelled multiply-adds, times two."""
