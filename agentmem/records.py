"""What was measured: one frozen row type per fact, with the unit in the field's name.

Rows are what the journal holds, one JSON object a line, `{"row": <type name>, ...fields}`.
Times named `*_s` are seconds; `start_s`/`end_s` count from the run's monotonic zero (R5).
`None` always means unknown, never zero (R2).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

RUN_FORMAT = 1
"""Version of the run folder. A reader takes its own and the previous one."""

Phase = Literal["construction", "retrieval", "generation"]
Bucket = Literal["measured", "setup", "judge", "harness", "wasted", "unattributed"]
Stage = Literal["ingest", "construct", "store", "retrieve", "assemble", "generate", "maintain"]
Endpoint = Literal["chat", "completion", "responses", "embedding", "other"]
Outcome = Literal["ok", "http_error", "transport_error", "abandoned", "truncated", "open"]
MarkKind = Literal["open", "snapshot", "constructed", "done", "resumed"]
UnitStatus = Literal["ok", "failed", "lost"]

PHASES: tuple[Phase, ...] = get_args(Phase)
BUCKETS: tuple[Bucket, ...] = get_args(Bucket)
STAGES: tuple[Stage, ...] = get_args(Stage)


@dataclass(frozen=True, slots=True)
class CallBegin:
    """A request arrived at the gateway; keeps a call in flight at a kill on the bill."""

    call_id: str
    logical_id: str
    scope: str
    system: str
    history: str
    operation: str | None
    """Name in the URL `/s/<scope>/<operation>/v1`, for systems that rebind their client."""
    unit: str | None
    """Ingest unit or question that the scope was working on; None outside any."""
    phase: Phase | None
    bucket: Bucket
    endpoint: Endpoint
    start_s: float
    epoch: int = 0
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP attempt, complete (R1). Token fields are the server's usage (R3, R4)."""

    call_id: str
    logical_id: str
    """Groups the attempts of one request: same scope and body, sent again by the client library."""
    attempt: int
    """0 for the first attempt of a logical call."""
    scope: str
    system: str
    history: str
    operation: str | None
    unit: str | None
    phase: Phase | None
    bucket: Bucket
    stage: Stage | None
    kind: str
    """extract, decide, answer, embed-write, ...; "unknown" when no fingerprint matched."""
    endpoint: Endpoint
    model: str | None
    stream: bool
    start_s: float
    latency_s: float
    """Arrival of the request to the last byte of the reply, at the gateway."""
    overhead_s: float | None
    """Part of `latency_s` not spent waiting for the upstream."""
    ttft_s: float | None
    """First token; a streamed reply's own, else the engine's figure, else unknown (R5)."""
    status: int | None
    outcome: Outcome
    error: str | None
    input_tokens: int | None
    uncached_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    own_input_tokens: int | None
    """Our count of the request's text, without the chat template (R4)."""
    own_output_tokens: int | None
    tokenizer: str | None
    sequences: int | None
    """Number of texts in an embedding request or prompts in a completion."""
    request_bytes: int
    response_bytes: int
    request_hash: str
    """sha256 of the body as sent by the system: equal prompts have equal hashes (R10)."""
    response_hash: str | None
    """sha256 of the reply's text and tool calls (ids and times left out)."""
    finish_reason: str | None
    max_tokens: int | None
    constrained: str | None
    """json_object, json_schema, tools or None."""
    session_id: str | None
    """What the gateway set; `sent_session_id` is what the system had sent."""
    sent_session_id: str | None
    traffic_class: Literal["interactive", "background"] | None
    sent_temperature: float | None
    seed: int | None
    retry_count: int | None
    engine: Mapping[str, Any] | None = None
    """`usage.agentmem` as the engine gave it (docs/schemas/usage.agentmem.json)."""
    epoch: int = 0
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class Reattribution:
    """A call's final phase, decided when its operation closed (tool loops)."""

    call_id: str
    phase: Phase
    stage: Stage | None
    kind: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Window:
    """One operation of one scope on the clock: a unit constructed, a question retrieved, ..."""

    scope: str
    system: str
    history: str
    phase: Phase | None
    bucket: Bucket
    unit: str | None
    start_s: float
    end_s: float
    quiet_s: float
    """Time spent waiting for quiet after the verb returned; not part of the work."""
    worker_cpu_s: float | None
    engine_cpu_s: float | None
    gateway_cpu_s: float | None
    worker_wait_s: float | None
    """Run-queue wait of the worker (contention)."""
    engine_wait_s: float | None
    energy_j: float | None
    """Joules read from a counter over the window; None where none is readable (R6)."""
    energy_source: Literal["counter", "integrated_power", "model", "none"]
    energy_scope: Literal["device", "package", "process", "host"] | None
    epoch: int = 0
    repeat: int = 0
    worker_read_bytes: int | None = None
    """Fetched from storage by the worker between the window's edges."""
    worker_write_bytes: int | None = None
    """Handed to storage by the worker between the window's edges."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One ingest unit given to one system, and what the system says it did with it."""

    scope: str
    system: str
    history: str
    unit: str
    index: int
    status: UnitStatus
    construct_s: float | None
    source_chars: int
    source_tokens: int
    added: int
    updated: int
    deleted: int
    lost: int
    store_version: int | None
    visible_s: float | None
    """Seconds from hand-over until the unit could be found, where the system knows it."""
    note: str | None = None
    epoch: int = 0
    repeat: int = 0
    """Which time round, where a profile runs every system several times."""
    source_bytes: int | None = None
    """UTF-8 length of the source text."""


@dataclass(frozen=True, slots=True)
class Query:
    """One question asked of one system: what was retrieved, what was answered, what was right."""

    scope: str
    system: str
    history: str
    question_id: str
    category: str
    question: str
    golds: tuple[str, ...]
    stale: tuple[str, ...]
    """Values that used to be true; an answer with one of these is a stale answer."""
    abstain: bool
    """True when the right answer is that it is not known."""
    evidence: tuple[str, ...]
    """Source ids (turns) that hold the answer."""
    evidence_texts: tuple[str, ...]
    status: Literal["ok", "failed"]
    answer: str | None
    retrieved_ids: tuple[str, ...] | None
    """Source ids of the entries used; None when the system does not return any."""
    retrieved_texts: tuple[str, ...]
    k: int
    """Entries asked for: 10, or 5 when the window would have overflowed."""
    overflow: bool
    cut_tokens: int
    """Tokens of context left out so that the prompt fits the window."""
    context_tokens: int | None
    retrieval_s: float | None
    generation_s: float | None
    version_read: int | None
    native_answer: bool
    epoch: int = 0
    versions_behind: int | None = None
    """Store versions between the newest when the question was asked and the one it read (0 when it
    read that or a later one); None where the system does not number its versions."""
    units_before: int | None = None
    """Units constructed when it was asked; fewer than all only where questions overlap them."""
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of one process, at 10 Hz. Counters are cumulative."""

    at_s: float
    role: str
    """worker:<system>, engine, gateway (this process)."""
    pid: int
    cpu_s: float
    rss_bytes: int
    peak_rss_bytes: int | None
    pss_bytes: int | None
    read_bytes: int | None
    write_bytes: int | None
    wait_s: float | None
    threads: int | None


@dataclass(frozen=True, slots=True)
class Footprint:
    """Size of one part of one scope's store, after a flush."""

    scope: str
    system: str
    history: str
    store: str
    size_bytes: int
    at: Literal["open", "constructed", "closed"]
    epoch: int = 0
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that went wrong and was lived through."""

    scope: str
    system: str
    history: str
    where: str
    """open, construct, flush, retrieve, answer, generate, close, install, ..."""
    unit: str | None
    kind: str
    """upstream_error, worker_died, timeout, silent_loss, transport, ..."""
    message: str
    last_output: str | None
    at_s: float
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """A point in a scope's life that resume relies on."""

    scope: str
    system: str
    history: str
    what: MarkKind
    unit: str | None
    """snapshot: the last unit it holds."""
    at_s: float
    kept: tuple[str, ...] | None = None
    """resumed: units and questions of earlier epochs that stand; all else is wasted."""
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Contention:
    """The whole machine's counters at one moment: how much other work was in the way."""

    scope: str | None
    """None at the edges of the run."""
    edge: Literal["begin", "end"]
    at_s: float
    stall_s: float | None
    """Wall time so far in which some task was ready and had no core (pressure stall)."""
    steal_s: float | None
    """Core seconds so far that a hypervisor gave to others."""
    busy_s: float | None
    idle_s: float | None
    cores: int
    epoch: int = 0


Row = (
    CallBegin
    | Call
    | Reattribution
    | Window
    | Unit
    | Query
    | Sample
    | Footprint
    | Failure
    | Mark
    | Contention
)
ROW_TYPES: dict[str, type[Any]] = {t.__name__: t for t in get_args(Row)}


def to_json(row: Row) -> dict[str, Any]:
    """Flat JSON object of a row, its type under "row"; shares the row's values, copies none."""
    # `dataclasses.asdict` would copy deeply: ten times the cost, on the path of every call.
    names = (f.name for f in dataclasses.fields(row))
    return {"row": type(row).__name__} | {name: getattr(row, name) for name in names}


def from_json(obj: Mapping[str, Any]) -> Row:
    """Inverse of `to_json`. Unknown fields are dropped so that a newer writer can be read."""
    cls = ROW_TYPES[obj["row"]]
    fields = {f.name: f for f in dataclasses.fields(cls)}
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in obj.items() if k in fields}
    return cls(**values)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class TokenSum:
    """A sum that knows how many of its terms were unknown (R2)."""

    total: float = 0.0
    known: int = 0
    missing: int = 0

    def __add__(self, value: float | None) -> TokenSum:
        if value is None:
            return TokenSum(self.total, self.known, self.missing + 1)
        return TokenSum(self.total + value, self.known + 1, self.missing)

    @property
    def value(self) -> float | None:
        """The total, or None when no term was known."""
        return self.total if self.known else None


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """How a call's kind is recognised: all `contains` strings occur in the request's text."""

    kind: str
    stage: Stage
    contains: tuple[str, ...]
    endpoint: Endpoint | None = None
    phase: Phase | None = None
    """Only while the scope is in this phase (embed-write against embed-query)."""
    schema: str | None = None
    """JSON schema (as text) of the reply that the adapter declares, used with `constrain = all`."""


@dataclass(frozen=True, slots=True)
class Scope:
    """One (run, system, history): one store folder, one gateway URL, one session prefix."""

    scope: str
    system: str
    history: str
    tenant: str
    fingerprints: tuple[Fingerprint, ...] = field(default=())
    epoch: int = 0
    """Rises with every resume; written into the scope's rows."""
    repeat: int = 0
