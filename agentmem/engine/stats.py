"""Counts of the engine as a whole."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from agentmem.engine.request import RequestRecord, TrafficClass
from agentmem.engine.turns import CLASSES

_MEMORY = 0.9
"""How much of the measured speed a further step leaves in place."""
_UNMEASURED_TOKENS_S = 500.0
"""Prompt tokens a second that are expected before any was run."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """The engine at one moment; totals since it was loaded. By class where a dictionary."""

    running: dict[TrafficClass, int]
    waiting: dict[TrafficClass, int]
    queued_tokens: dict[TrafficClass, int]
    """Prompt tokens of requests that have not begun."""
    requests: int
    """Finished, aborted ones included."""
    kv_blocks_used: int
    kv_blocks_cached: int
    kv_blocks_free: int
    kv_bytes_used: int
    kv_bytes_cached: int
    queried_tokens: int
    hit_tokens: int
    prompt_tokens: int
    generated_tokens: int
    cached_tokens: int
    drafted_tokens: int
    accepted_tokens: int
    preemptions: int
    recomputed_tokens: int
    steps: int
    interrupted_steps: int
    step_s: float
    evictions: int
    sessions: int


@dataclass(slots=True)
class Counters:
    """What the engine's thread counts; read from anywhere."""

    requests: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    cached_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    recomputed_tokens: int = 0
    steps: int = 0
    interrupted_steps: int = 0
    step_ns: int = 0
    prefill_tokens_s: float = _UNMEASURED_TOKENS_S
    """Prompt tokens a second, of the last steps that had more than single tokens."""

    def add_request(self, record: RequestRecord) -> None:
        """Book a finished request."""
        self.requests += 1
        self.prompt_tokens += record.uncached_tokens + record.cached_tokens
        self.generated_tokens += record.generated_tokens
        self.cached_tokens += record.cached_tokens
        self.drafted_tokens += record.drafted_tokens
        self.accepted_tokens += record.accepted_tokens
        self.recomputed_tokens += record.recomputed_tokens

    def add_step(self, wall_ns: int, prefill_rows: int) -> None:
        """Book a step, with the rows that belong to prompts."""
        self.steps += 1
        self.step_ns += wall_ns
        if prefill_rows and wall_ns:
            speed = prefill_rows * 1e9 / wall_ns
            self.prefill_tokens_s = _MEMORY * self.prefill_tokens_s + (1 - _MEMORY) * speed


@dataclass(slots=True)
class Backlog:
    """Prompt tokens of requests that have not begun, by class. Thread-safe."""

    tokens: dict[TrafficClass, int] = field(default_factory=lambda: dict.fromkeys(CLASSES, 0))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: TrafficClass, tokens: int, most: int | None = None) -> bool:
        """Count a request in; False, changing nothing, when that makes more than `most`.

        An empty queue takes any request.
        """
        with self._lock:
            there = self.tokens[kind]
            if most is not None and there and there + tokens > most:
                return False
            self.tokens[kind] = there + tokens
            return True

    def remove(self, kind: TrafficClass, tokens: int) -> None:
        """Count a request out: it begins, or ends before it has begun."""
        with self._lock:
            self.tokens[kind] -= tokens
