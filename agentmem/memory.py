"""The seam between agentmem and a memory system: subclass `MemorySystem`, fill in five verbs.

Standard library only and Python 3.10+: the worker loads this file by path inside the system's
own environment, where the `agentmem` package is not installed. An adapter writes
`from agentmem.memory import MemorySystem, ...` and nothing else of agentmem.

Model calls go to `endpoints.chat_url` / `endpoints.embed_url` (OpenAI-compatible base URLs ending
in `/v1`) and nowhere else: that is how they are counted.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from typing import Any

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
class Answer:
    """An answer made in the system's own loop, with what it had retrieved."""

    text: str
    entries: tuple[Entry, ...] = ()
    version_read: int | None = None


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
        """Remove a user's memories, or those of some units; returns records removed."""
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
                total += os.lstat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue
    return total
