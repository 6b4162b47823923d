"""One request on its way through the engine: tokens, state and what it has cost so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from agentmem.engine.drafts import Drafter
from agentmem.engine.kv.tables import Holding
from agentmem.engine.request import (
    Delta,
    FinishReason,
    Request,
    RequestRecord,
    TokenScores,
    TrafficClass,
)
from agentmem.engine.sampler import Sampler
from agentmem.engine.text import TextStream
from agentmem.engine.truth import Share


@dataclass(slots=True)
class Costs:
    """Seconds on the engine's monotonic clock, times in nanoseconds.

    Prefill and decode are whole steps that it took part in; shares are its part of them, `cpu_ns`
    over all threads that worked for it.
    """

    arrived_s: float
    first_token_s: float | None = None
    prefill_ns: int = 0
    decode_ns: int = 0
    share_ns: int = 0
    cpu_ns: int = 0
    read_bytes: int = 0
    operations: int = 0
    drafted: int = 0
    accepted: int = 0
    preemptions: int = 0
    recomputed: int = 0

    def add(self, share: Share, step_ns: int, prefill: bool) -> None:
        """Book its part of a step that took `step_ns`."""
        if prefill:
            self.prefill_ns += step_ns
        else:
            self.decode_ns += step_ns
        self.share_ns += share.wall_ns
        self.cpu_ns += share.cpu_ns
        self.read_bytes += share.read_bytes
        self.operations += share.operations


@dataclass(slots=True)
class Voice:
    """What chooses a sequence's tokens and turns them into text; made when it first runs."""

    sampler: Sampler
    text: TextStream
    drafter: Drafter | None = None

    def propose(self, most: int) -> tuple[tuple[int, ...], bool]:
        """Drafts of what comes next, and whether they come from the text, not from a grammar."""
        if self.drafter is None or most <= 0:
            return (), False
        forced = self.sampler.forced()[:most]
        if forced:
            return tuple(forced), False
        return tuple(self.sampler.fitting(self.drafter.propose(most))), True


@dataclass(slots=True, eq=False)
class Sequence:
    """Touched by the engine's thread only, but for `cancelled`. Light until it first runs."""

    request: Request
    on_delta: Callable[[Delta], None]
    on_done: Callable[[RequestRecord], None]
    max_tokens: int
    costs: Costs
    number: int = 0
    """Order of arrival."""
    tokens: list[int] = field(default_factory=list)
    """Prompt, then what was generated; empty before the first run."""
    voice: Voice | None = None
    holding: Holding | None = None
    """Its blocks while it runs."""
    computed: int = 0
    """Positions whose state is there."""
    reached: int = 0
    """Positions whose state has been there once."""
    cached_tokens: int | None = None
    """Of the prompt, from the cache, when it first ran."""
    state_bytes: int = 0
    unsent: list[int] = field(default_factory=list)
    """Tokens whose text was not yet sent."""
    scores: list[TokenScores] = field(default_factory=list)
    ready: str = ""
    """Text that can be sent."""
    cancelled: bool = False
    done: bool = False

    @property
    def traffic_class(self) -> TrafficClass:
        """Of its request."""
        return self.request.traffic_class

    @property
    def generated(self) -> int:
        """Tokens chosen so far."""
        return max(0, len(self.tokens) - len(self.request.prompt))

    @property
    def pending(self) -> int:
        """Known tokens not yet run: the rest of the prompt, or the one just chosen."""
        return len(self.tokens) - self.computed

    def propose(self, most: int) -> tuple[tuple[int, ...], bool]:
        """See Voice; nothing before it has one."""
        return ((), False) if self.voice is None else self.voice.propose(most)

    def take(self, token: int, eos: frozenset[int]) -> FinishReason | None:
        """Append a chosen token; says why it was the last one, if it was."""
        assert self.voice is not None
        self.tokens.append(token)
        self.unsent.append(token)
        forced = self.request.forced
        if forced is None and token in eos and not self.request.sampling.ignore_eos:
            return "stop"
        self.ready += self.voice.text.push(token)
        if forced is not None:
            if self.generated < len(forced):
                return None
            return "stop" if token in eos or self.voice.text.stopped else "length"
        complete = self.voice.sampler.advance(token)
        if complete or self.voice.text.stopped:
            return "stop"
        return "length" if self.generated >= self.max_tokens else None

    def send(self, reason: FinishReason | None = None) -> None:
        """Hand the listener what is certain, with all tokens since the last piece."""
        if reason is not None and self.voice is not None:
            self.ready += self.voice.text.finish()
        if not self.ready and reason is None:
            return
        delta = Delta(self.ready, tuple(self.unsent), reason, tuple(self.scores))
        self.ready, self.unsent, self.scores = "", [], []
        self.on_delta(delta)

    def record(self, reason: FinishReason, now_s: float) -> RequestRecord:
        """The engine's account. Waiting, prefill and decode add up to the whole time."""
        costs, request = self.costs, self.request
        first = costs.first_token_s
        prefill_s, decode_s = costs.prefill_ns / 1e9, costs.decode_ns / 1e9
        cached = self.cached_tokens or 0
        return RequestRecord(
            request_id=request.request_id,
            session_id=request.session_id,
            tenant=request.tenant,
            traffic_class=request.traffic_class,
            queue_s=max(0.0, now_s - costs.arrived_s - prefill_s - decode_s),
            prefill_s=prefill_s,
            decode_s=decode_s,
            ttft_s=None if first is None else first - costs.arrived_s,
            uncached_tokens=max(0, min(self.reached, len(request.prompt)) - cached),
            cached_tokens=cached,
            generated_tokens=self.generated,
            drafted_tokens=costs.drafted,
            accepted_tokens=costs.accepted,
            state_bytes=self.state_bytes,
            step_share_s=costs.share_ns / 1e9,
            cpu_s=costs.cpu_ns / 1e9,
            finish_reason=reason,
            preemptions=costs.preemptions,
            recomputed_tokens=costs.recomputed,
            read_bytes=float(costs.read_bytes),
            operations=float(costs.operations),
        )
