"""One request on its way through the engine: tokens, state and what it has cost so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from agentmem.engine.cache import KVCache, PoolKey
from agentmem.engine.request import Delta, FinishReason, Request, RequestRecord
from agentmem.engine.sampler import Sampler
from agentmem.engine.text import TextStream


@dataclass(slots=True)
class Costs:
    """Seconds on the engine's monotonic clock; `cpu_s` over all threads that worked for it."""

    arrived_s: float
    prefill_s: float = 0.0
    decode_s: float = 0.0
    cpu_s: float = 0.0
    first_token_s: float | None = None


@dataclass(slots=True)
class Sequence:
    """Mutable; touched by the engine's thread only, but for `cancelled`."""

    request: Request
    on_delta: Callable[[Delta], None]
    on_done: Callable[[RequestRecord], None]
    sampler: Sampler
    text: TextStream
    max_tokens: int
    costs: Costs
    tokens: list[int]
    """Prompt, then what was generated."""
    cache: KVCache | None = None
    """None until the first step."""
    cached_tokens: int = 0
    unsent: list[int] = field(default_factory=list)
    """Tokens whose text was not yet certain."""
    cancelled: bool = False

    @property
    def generated(self) -> int:
        """Tokens sampled so far."""
        return len(self.tokens) - len(self.request.prompt)

    @property
    def pending(self) -> int:
        """Tokens not yet run: the rest of the prompt, or the one just sampled."""
        return len(self.tokens) - (self.cache.length if self.cache else 0)

    @property
    def pool_key(self) -> PoolKey | None:
        """What it may share state with; None for a request outside any session."""
        session = self.request.session_id
        return None if session is None else (self.request.tenant, session)

    def send(self, text: str, reason: FinishReason | None = None) -> None:
        """Hand text to the listener, with all tokens since the last piece."""
        tokens, self.unsent = tuple(self.unsent), []
        self.on_delta(Delta(text, tokens, reason))

    def record(self, reason: FinishReason, now_s: float) -> RequestRecord:
        """The engine's account. Waiting, prefill and decode add up to the whole time."""
        costs, request = self.costs, self.request
        first = costs.first_token_s
        run = self.cache.length - self.cached_tokens if self.cache else 0
        return RequestRecord(
            request_id=request.request_id,
            session_id=request.session_id,
            tenant=request.tenant,
            traffic_class=request.traffic_class,
            queue_s=max(0.0, now_s - costs.arrived_s - costs.prefill_s - costs.decode_s),
            prefill_s=costs.prefill_s,
            decode_s=costs.decode_s,
            ttft_s=None if first is None else first - costs.arrived_s,
            uncached_tokens=min(run, len(request.prompt) - self.cached_tokens),
            cached_tokens=self.cached_tokens,
            generated_tokens=self.generated,
            state_bytes=self.cache.size_bytes if self.cache else 0,
            step_share_s=costs.prefill_s + costs.decode_s,
            cpu_s=costs.cpu_s,
            finish_reason=reason,
        )
