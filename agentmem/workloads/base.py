"""What a memory system is fed and asked: conversations, questions, and their ingest units.

A loader makes `Conversation`s (dated sessions of turns, with questions); `units.cut` turns each
into a `History` of ingest units. The unit changes the number of calls many-fold on the same text,
so it is always a recorded parameter.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from agentmem.errors import UsageError, nearest
from agentmem.memory import Turn, Unit

UnitKind = Literal["turn", "pair", "session", "chunk"]
Style = Literal["chat", "assistant", "facts"]
UNIT_KINDS: tuple[UnitKind, ...] = get_args(UnitKind)
STYLES: tuple[Style, ...] = get_args(Style)


@dataclass(frozen=True, slots=True)
class Question:
    """One question about a history, with everything a score needs."""

    question_id: str
    text: str
    category: str
    golds: tuple[str, ...]
    """Any one of these is right; empty only when `abstain`."""
    stale: tuple[str, ...] = ()
    """Values that used to be true."""
    abstain: bool = False
    """The right answer is that it is not known."""
    evidence: tuple[str, ...] = ()
    """Source ids of the turns that hold the answer."""
    evidence_texts: tuple[str, ...] = ()
    """Those turns as dated lines, in the order of the conversation."""
    at: str | None = None
    """When it is asked, ISO 8601."""


@dataclass(frozen=True, slots=True)
class Session:
    """Turns of one sitting, in order. `at` is ISO 8601, None where the data set has no date."""

    session_id: str
    at: str | None
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """One user's whole history before it is cut into units."""

    history: str
    user: str
    sessions: tuple[Session, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class History:
    """One user's history as ingest units, in order, and the questions asked after it."""

    history: str
    user: str
    units: tuple[Unit, ...]
    questions: tuple[Question, ...]
    source_tokens: int
    """Tokens of the whole history as plain text; the same for every ingest unit."""
    source_chars: int
    unit_tokens: tuple[int, ...] = ()
    """Tokens of each unit's text, parallel to `units`."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Histories ready to be driven, with what they were made from."""

    name: str
    params: Mapping[str, Any]
    """Every option that shaped the data, defaults included."""
    histories: tuple[History, ...]
    sources: Mapping[str, Any] = field(default_factory=dict)
    """Files with sha256, licence, and counts of what was repaired or dropped."""


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """The `[workload]` table of a profile. None or () means: not given."""

    name: str
    unit: UnitKind = "session"
    chunk_tokens: int = 512
    """Length of a `chunk` unit in tokens of `tokenizer`."""
    tokenizer: str = "words-v1"
    """Reference tokenizer that measures lengths and cuts chunks, whatever the model."""
    seed: int = 0
    path: str | None = None
    """A data file, or the folder it lies in; default: below $AGENTMEM_DATA."""
    histories: int | None = None
    """Only the first N histories (generated: how many to make)."""
    samples: tuple[str, ...] = ()
    """Only the histories with these ids."""
    sessions: int | None = None
    """Only the first N sessions (generated: how many to write)."""
    questions: int | None = None
    """Questions per history, taken in turn from the categories."""
    categories: tuple[str, ...] = ()
    """Only questions of these categories."""
    history_tokens: int | None = None
    """Length of a generated history."""
    style: Style = "chat"
    """Turn lengths of a generated history."""
    drop_wrong_golds: bool = False
    captions: bool = True
    """Whether a shared picture's caption is part of the turn that shared it."""

    def __post_init__(self) -> None:
        if self.unit not in UNIT_KINDS:
            raise UsageError(f"workload.unit {self.unit!r}: {nearest(self.unit, list(UNIT_KINDS))}")
        if self.style not in STYLES:
            raise UsageError(f"workload.style {self.style!r}: {nearest(self.style, list(STYLES))}")
        for name, most in _MOST.items():
            value = getattr(self, name)
            if value is not None and not 1 <= value <= most:
                raise UsageError(f"workload.{name} must be 1 to {most:,}, not {str(value)[:40]}")
        if not -(2**63) <= self.seed < 2**63:
            raise UsageError("workload.seed must fit in 64 bits")
        if self.path is not None and ("\0" in self.path or not self.path.strip()):
            raise UsageError(f"workload.path {self.path!r} is not a path")

    @classmethod
    def from_mapping(cls, table: Mapping[str, Any]) -> WorkloadSpec:
        """The spec of a profile's table; UsageError for an unknown key or wrong type."""
        known = {f.name: str(f.type) for f in dataclasses.fields(cls)}
        if "name" not in table:
            raise UsageError('[workload] needs a name, e.g. name = "generated"')
        values: dict[str, Any] = {}
        for key, value in table.items():
            if key not in known:
                raise UsageError(f"unknown key workload.{key}: {nearest(key, list(known))}")
            values[key] = _checked(key, value, known[key])
        return cls(**values)

    def given(self) -> frozenset[str]:
        """Names of the fields that differ from their default."""
        return frozenset(
            f.name
            for f in dataclasses.fields(self)
            if f.name != "name" and getattr(self, f.name) != f.default
        )


def _checked(key: str, value: Any, declared: str) -> Any:
    """The value as its field wants it, lists made tuples of text."""
    if declared.startswith("tuple"):
        if not isinstance(value, list | tuple):
            raise UsageError(f'workload.{key} must be a list, e.g. {key} = ["{value}"]')
        return tuple(str(item) for item in value)
    wanted: type = str
    if declared.startswith(("int", "bool")):
        wanted = bool if declared.startswith("bool") else int
    if value is None and "None" in declared:
        return None
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise UsageError(f"workload.{key} must be {_WORDS[wanted]}, not {value!r}")
    return value


_MOST = {
    "chunk_tokens": 10_000_000,
    "histories": 1_000_000,
    "sessions": 10_000,
    "questions": 1_000_000,
    "history_tokens": 100_000_000,
}
"""Greatest value of every count: what fits in memory, and in a calendar of whole years."""

_WORDS: dict[type, str] = {str: "text", int: "a whole number", bool: "true or false"}


def content_hash(workload: Workload) -> str:
    """sha256 over every unit and question: equal data has an equal hash on every machine."""
    blob = json.dumps(
        [dataclasses.asdict(history) for history in workload.histories],
        sort_keys=True,
        ensure_ascii=False,
        separators=(",", ":"),
    )
    return hashlib.sha256(blob.encode("utf-8", "surrogatepass")).hexdigest()
