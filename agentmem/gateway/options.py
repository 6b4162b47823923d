"""Where the gateway forwards to, and what it may change on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agentmem.records import Phase

if TYPE_CHECKING:
    from agentmem.gateway.forcing import Forcing
    from agentmem.gateway.record import Recording
    from agentmem.gateway.replay import Replay

TrafficClass = Literal["interactive", "background"]


@dataclass(frozen=True, slots=True)
class Upstream:
    """Model servers behind the gateway; URLs end in `/v1`."""

    chat_url: str
    embed_url: str | None = None
    """Where embeddings go; None sends them to `chat_url`."""
    api_key: str | None = None
    """Replaces whatever key the system sent; None sends none."""
    embed_api_key: str | None = None
    report_url: str | None = None
    """`GET {report_url}/{X-Request-Id}` gives `{"usage": ...}` of a request whose client left."""


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """Policy of one run. The defaults change nothing but temperature, seed and session id."""

    capture_dir: Path | None = None
    """Folder for request and reply bodies; None keeps no text anywhere."""
    sampling: Literal["fixed", "native"] = "fixed"
    """fixed: temperature and seed are ours; native: the system's, a seed added if it sent none."""
    constrain: Literal["off", "tools", "all"] = "tools"
    temperature: float = 0.0
    seed: int = 0
    """Mixed into every call's seed, so that repeats differ where sampling is not greedy."""
    token_counter: Callable[[str], int] | None = None
    """Our own count of a text, called on the recorder's thread after the reply (R4)."""
    tokenizer_name: str | None = None
    upstream_timeout_s: float = 600.0
    """Longest silence of the upstream before a call is given up."""
    connect_timeout_s: float = 10.0
    port: int = 0
    """0 lets the operating system choose."""
    ask_stream_usage: bool = True
    """Ask for `stream_options.include_usage` where the system did not."""
    on_abandon: Literal["close", "drain"] = "close"
    """What a leaving client means for the upstream: passed on, or read to the end for usage."""
    drain_timeout_s: float = 60.0
    record: Recording | None = None
    """Keeps every reply; closed by its owner after the gateway has stopped."""
    replay: Replay | None = None
    """Answers every call in the upstream's place, which is then never contacted."""
    forcing: Forcing | None = None
    """With `replay`: the upstream is made to produce the recorded replies, which are then given."""
    traffic: Mapping[Phase, TrafficClass] = field(
        default_factory=lambda: {"construction": "background"}
    )
    """By phase; what is not named, and what belongs to no phase, is interactive."""
    ways: Mapping[str, Any] = field(default_factory=dict)
    """Body fields that go with every generating call to an engine of ours: `drafts`, `reuse`."""

    def traffic_class(self, phase: Phase | None) -> TrafficClass:
        """How urgent a call of a phase is."""
        return "interactive" if phase is None else self.traffic.get(phase, "interactive")

    @property
    def keeps_text(self) -> bool:
        """Whether bodies are wanted after their reply has gone out."""
        return self.capture_dir is not None or self.record is not None
