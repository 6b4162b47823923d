"""The seam between agentmem and a memory system: subclass `MemorySystem`, fill in five verbs.

Standard library only and Python 3.10+: the worker loads this file by path inside the system's
own environment, where the `agentmem` package is not installed. An adapter writes
`from agentmem.memory import MemorySystem, ...` and nothing else of agentmem.

Model calls go to `endpoints.chat_url` / `endpoints.embed_url` (OpenAI-compatible base URLs ending
in `/v1`) and nowhere else: that is how they are counted.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

__all__ = [
    "WIRE",
    "Answer",
    "AnsweringSystem",
    "Called",
    "Endpoints",
    "Entry",
    "Limits",
    "MemorySystem",
    "Passage",
    "RecordFile",
    "Retrieved",
    "Stored",
    "Turn",
    "Unit",
    "cut",
    "passages",
    "tree_bytes",
]

WIRE = 1
"""Version of the worker's message format."""


@dataclass(frozen=True)
class Endpoints:
    """Where a system reaches models. `api_key` is a placeholder the gateway accepts."""

    chat_url: str
    chat_model: str
    embed_url: str
    embed_model: str
    embed_dims: int
    """Width of an embedding vector."""
    window_tokens: int
    """Context window of the chat model, prompt and answer together."""
    api_key: str = "agentmem"

    def for_operation(self, operation: str) -> Endpoints:
        """The same endpoints under `/s/<scope>/<operation>/v1`, for clients that can be rebound."""

        def rebase(url: str) -> str:
            return f"{url.rsplit('/v1', 1)[0]}/{operation}/v1"

        values = dict(self.__dict__)
        values["chat_url"], values["embed_url"] = rebase(self.chat_url), rebase(self.embed_url)
        return Endpoints(**values)


@dataclass(frozen=True)
class Limits:
    """Caps that an adapter honours; each hit is reported in `Stored.note` or a Failure."""

    max_output_tokens: int = 256
    """Cap for one model call made during construction or retrieval."""
    request_timeout_s: float = 600.0
    max_tool_loops: int = 8
    options: dict[str, Any] = field(default_factory=dict)
    """`[systems.<name>]` of the profile, passed on unread."""


@dataclass(frozen=True)
class Turn:
    """One message of a conversation. `source_id` is what evidence recall refers to."""

    source_id: str
    speaker: str
    role: str
    """user or assistant, for systems that want chat messages."""
    text: str
    at: str | None = None
    """The workload's own time stamp, ISO 8601."""


@dataclass(frozen=True)
class Unit:
    """What is handed over in one `construct`: a turn, a pair, a session, or a cut chunk."""

    unit_id: str
    user: str
    text: str
    """The whole unit as plain text, ready for systems that take documents."""
    turns: tuple[Turn, ...] = ()
    """The same content as messages; empty for workloads that are not dialogue."""
    at: str | None = None


@dataclass(frozen=True)
class Stored:
    """What a `construct` did. Counts are records in the system's own sense."""

    added: int = 0
    updated: int = 0
    deleted: int = 0
    lost: int = 0
    """Pieces that upstream dropped without raising."""
    store_version: int | None = None
    """Rises with every change of the store."""
    visible_at: float | None = None
    """Seconds after `construct` was called when the unit became findable; None if unknown."""
    note: str | None = None


@dataclass(frozen=True)
class Entry:
    """One retrieved piece of memory."""

    text: str
    score: float | None = None
    source_ids: tuple[str, ...] | None = None
    """Turns it came from; None when the system does not know."""


@dataclass(frozen=True)
class Retrieved:
    entries: tuple[Entry, ...] = ()
    version_read: int | None = None


@dataclass(frozen=True)
class Called:
    """What some model calls of one `answer` turned out to be for.

    With `call_id` it is one call, named by its reply header `X-Agentmem-Call`. Otherwise it is the
    calls of that `kind` (a fingerprint's, or "embed-query"), or without a kind every chat call;
    `index` picks one of them in order of arrival, negative from the end. A client library's retries
    go with the call that they repeat.
    """

    phase: str
    """generation (the final text), construction (write-behind) or retrieval (all else)."""
    kind: str | None = None
    index: int | None = None
    call_id: str | None = None
    becomes: str | None = None
    """The calls' kind from now on; None keeps what was known, or takes the phase's usual one."""


@dataclass(frozen=True)
class Answer:
    """An answer made in the system's own loop, with what it had retrieved."""

    text: str
    entries: tuple[Entry, ...] = ()
    version_read: int | None = None
    calls: tuple[Called, ...] = ()
    """What the calls were for, a later entry over an earlier one; those not named are retrieval.

    Empty: the last chat call that succeeded is generation, all others are retrieval.
    """


class MemorySystem:
    """A memory system under test. Override `open`, `construct`, `retrieve`; the rest has defaults.

    One instance serves one scope (one history) and one store folder. Raise for what failed; report
    in `Stored.lost` what upstream swallowed.
    """

    dir: str

    def open(self, dir: str, endpoints: Endpoints, limits: Limits) -> None:
        """Open or reopen the store in folder `dir`."""
        raise NotImplementedError

    def construct(self, unit: Unit) -> Stored:
        """Write path: take one unit in. An update of a fact is simply a later unit."""
        raise NotImplementedError

    def flush(self) -> None:
        """Return once the system's own background work is done and the store is on disk."""

    def retrieve(self, user: str, question: str, k: int) -> Retrieved:
        """Read path: at most `k` entries, best first. An unknown user finds nothing (R9)."""
        raise NotImplementedError

    def forget(self, user: str | None = None, unit_ids: tuple[str, ...] = ()) -> int:
        """Remove a user's memories, those of some units, or those of some units of a user.

        Returns the number of records removed.
        """
        raise NotImplementedError("this system cannot forget")

    def maintain(self) -> None:
        """Native upkeep (compaction, consolidation), booked as construction."""

    def footprint(self) -> dict[str, int]:
        """Bytes on disk by part of the store."""
        return {"store": tree_bytes(self.dir)} if hasattr(self, "dir") else {}

    def snapshot(self, to: str) -> None:
        """Copy the store to folder `to`. Called on a flushed store."""
        shutil.copytree(self.dir, to, dirs_exist_ok=True)

    def close(self) -> None:
        """Release files and clients. The store can be opened again afterwards."""


class AnsweringSystem(MemorySystem):
    """A system that answers in its own loop; `native_answer = true` in its system.toml."""

    def answer(self, user: str, question: str) -> Answer:
        raise NotImplementedError


def tree_bytes(path: str) -> int:
    """Bytes of all files below `path` (apparent size; links not followed)."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += Path(folder, name).lstat().st_size
            except FileNotFoundError:
                continue
    return total


@dataclass(frozen=True)
class Passage:
    """A piece of a unit, small enough to be indexed and shown on its own."""

    text: str
    """`Speaker: text`, for the index."""
    shown: str
    """The same with its date in front, for the reader."""
    source_ids: tuple[str, ...] | None
    """The turn it is from; None for a unit without turns."""


def passages(unit: Unit, max_chars: int = 1000) -> list[Passage]:
    """One passage per turn, or of the unit's text where it has no turns; long ones are cut."""
    found: list[Passage] = []
    for turn in unit.turns:
        date = _date(turn.at or unit.at)
        speaker = f"{turn.speaker}: " if turn.speaker else ""
        for piece in cut(turn.text, max_chars):
            text = speaker + piece
            found.append(Passage(text, date + text, (turn.source_id,)))
    if not unit.turns:
        found = [Passage(piece, piece, None) for piece in cut(unit.text, max_chars)]
    return found


def cut(text: str, max_chars: int) -> list[str]:
    """Pieces of at most `max_chars`, cut after a line, sentence or word; blank ones left out."""
    pieces, start = [], 0
    while len(text) - start > max_chars:
        half, end = start + max_chars // 2, start + max_chars
        for mark in ("\n", ". ", " "):
            at = text.rfind(mark, half, end)
            if at >= 0:
                end = at + len(mark)
                break
        pieces.append(text[start:end])
        start = end
    pieces.append(text[start:])
    return [piece for piece in pieces if piece.strip()]


def _date(at: str | None) -> str:
    """`[8 May 2023, 13:56] ` from ISO 8601; "" when unknown."""
    try:
        when = datetime.fromisoformat(at or "")
    except ValueError:
        return ""
    time = f", {when:%H:%M}" if "T" in (at or "") else ""
    return f"[{when.day} {when:%B %Y}{time}] "


class RecordFile:
    """Append-only JSON lines, for adapters that keep a store of their own.

    A record is whole or absent: the torn last line of a crash is cut off at opening. Every append
    and every rewrite is a new version.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.exists():
            self._write(0, ())
        self._base, self._count = self._recover()
        self._file = self.path.open("ab")

    @property
    def version(self) -> int:
        """Number of changes since the file was made."""
        return self._base + self._count

    def read(self) -> Iterator[Any]:
        """All records, oldest first, from the disk."""
        with self.path.open("rb") as file:
            next(file)
            for line in file:
                yield json.loads(line)

    def append(self, record: Any) -> None:
        """Add a record; it survives the death of the process, and of the machine after `sync`."""
        self._file.write(json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n")
        self._file.flush()
        self._count += 1

    def rewrite(self, records: Iterable[Any]) -> None:
        """Replace all records at once, so that what was forgotten is gone from the disk."""
        kept = list(records)
        self._file.close()
        self._base, self._count = self._write(self.version + 1 - len(kept), kept)
        self._file = self.path.open("ab")

    def sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def _write(self, base: int, records: Iterable[Any]) -> tuple[int, int]:
        count, new = 0, self.path.with_name(self.path.name + ".new")
        with new.open("wb") as file:
            file.write(json.dumps({"base": base}).encode("ascii") + b"\n")
            for record in records:
                file.write(json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n")
                count += 1
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)
        return base, count

    def _recover(self) -> tuple[int, int]:
        """Cut a torn tail; raises ValueError for damage anywhere else."""
        with self.path.open("rb+") as file:
            base = json.loads(file.readline())["base"]
            count, good = 0, file.tell()
            for line in file:
                if not line.endswith(b"\n"):
                    break
                try:
                    json.loads(line)
                except ValueError:
                    raise ValueError(f"{self.path}: record {count + 1} is damaged") from None
                count, good = count + 1, good + len(line)
            file.truncate(good)
        return base, count
