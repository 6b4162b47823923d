"""Mem0 1.0.11 as shipped: the model extracts facts and consolidates them, Qdrant stores them."""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from mem0 import Memory
from mem0.memory.utils import extract_json, remove_code_blocks

from agentmem.memory import (
    Endpoints,
    Entry,
    Limits,
    MemorySystem,
    Retrieved,
    Stored,
    Turn,
    Unit,
    tree_bytes,
)

COLLECTION = "facts"
ROLES = ("people", "given")
EVENTS = ("ADD", "UPDATE", "DELETE")
NOTHING_KNOWN = "\n    Current memory is empty.\n"
"""Stands in the consolidation prompt when no stored fact is near."""


class Mem0(MemorySystem):
    """One Mem0 store: `qdrant/` and `history.db`, beside them which unit wrote which fact."""

    _memory: Any = None

    def open(self, dir: str, endpoints: Endpoints, limits: Limits) -> None:
        self.dir = dir
        self._roles = _choice(limits.options, "roles", ROLES)
        self._replies = Replies()
        self._memory = _connect(Path(dir), endpoints, limits, self._replies)
        for part in (self._memory.llm, self._memory.embedding_model):
            part.client = part.client.with_options(timeout=limits.request_timeout_s)
        self._uncapped = self._memory.llm._is_reasoning_model(endpoints.chat_model)
        logging.getLogger("mem0.memory").addHandler(self._replies.errors)

    def construct(self, unit: Unit) -> Stored:
        """One `add` of the whole unit. Raises what Mem0 raises; counts what it swallows."""
        self._replies.clear()
        started = time.perf_counter()
        answer = self._memory.add(chat(unit, self._roles), user_id=unit.user, infer=True)
        elapsed = time.perf_counter() - started
        done = answer["results"]
        self._remember(unit, done)
        lost = self._replies.losses(len(done))
        events = [result["event"] for result in done]
        added, updated, deleted = (events.count(event) for event in EVENTS)
        return Stored(
            added=added,
            updated=updated,
            deleted=deleted,
            lost=sum(count for count, _ in lost),
            store_version=self._version(),
            visible_at=elapsed if added or updated else None,
            note="; ".join(self._notes(lost)) or None,
        )

    def flush(self) -> None:
        """Nothing to wait for: `add` joins its threads, and every write is a committed one."""

    def retrieve(self, user: str, question: str, k: int) -> Retrieved:
        """Cosine top-k of the user's facts; Mem0 does not know which turns a fact came from."""
        found = self._memory.search(_utf8(question), user_id=user, limit=k)["results"]
        entries = tuple(Entry(hit["memory"], float(hit["score"])) for hit in found)
        return Retrieved(entries, self._version())

    def forget(self, user: str | None = None, unit_ids: tuple[str, ...] = ()) -> int:
        """Remove every fact that a matching unit wrote or rewrote, its past texts included."""
        if user is None and not unit_ids:
            raise ValueError("forget needs a user or unit ids")
        lines = self._provenance()
        gone = {
            line["memory"]
            for line in lines
            if (user is None or line["user"] == user) and (not unit_ids or line["unit"] in unit_ids)
        }
        live = [memory for memory in sorted(gone) if self._memory.get(memory) is not None]
        for memory in live:
            self._memory.delete(memory)
        kept = [line for line in lines if line["memory"] not in gone]
        self._units_file.write_text("".join(json.dumps(line) + "\n" for line in kept))
        self._scrub(gone)
        return len(live)

    def footprint(self) -> dict[str, int]:
        """Bytes of Mem0's own files; the adapter's list of units is not Mem0's and left out."""
        root = Path(self.dir)
        return {
            "qdrant": tree_bytes(str(root / "qdrant")),
            "history": (root / "history.db").stat().st_size,
            "home": tree_bytes(str(root / "home")),
        }

    def close(self) -> None:
        if self._memory is None:
            return
        logging.getLogger("mem0.memory").removeHandler(self._replies.errors)
        self._memory.close()
        self._memory.vector_store.client.close()
        for part in (self._memory.llm, self._memory.embedding_model):
            part.client.close()
        self._memory = None

    @property
    def _units_file(self) -> Path:
        return Path(self.dir) / "units.jsonl"

    def _remember(self, unit: Unit, done: list[dict[str, Any]]) -> None:
        """Which unit wrote which fact, for `forget`: an UPDATE drops the fact's own metadata."""
        with self._units_file.open("a", encoding="utf-8") as file:
            for result in done:
                line = {"memory": result["id"], "user": unit.user, "unit": unit.unit_id}
                file.write(json.dumps(line) + "\n")

    def _provenance(self) -> list[dict[str, str]]:
        if not self._units_file.exists():
            return []
        return [json.loads(line) for line in self._units_file.read_text("utf-8").splitlines()]

    def _scrub(self, memories: set[str]) -> None:
        """Blank the texts that the event log keeps of removed facts; the events stay counted."""
        history = self._memory.db.connection
        with history:
            history.executemany(
                "UPDATE history SET old_memory = NULL, new_memory = NULL WHERE memory_id = ?",
                [(memory,) for memory in sorted(memories)],
            )
        history.execute("VACUUM")
        store = Path(self.dir) / "qdrant" / "collection" / COLLECTION / "storage.sqlite"
        with closing(sqlite3.connect(store)) as connection:
            connection.execute("VACUUM")

    def _version(self) -> int:
        """Number of events ever logged: it rises with every change and survives a reopening."""
        row = self._memory.db.connection.execute("SELECT COUNT(*) FROM history").fetchone()
        return int(row[0])

    def _notes(self, lost: list[tuple[int, str]]) -> Iterator[str]:
        yield from (f"{count} lost: {reason}" if count else reason for count, reason in lost)
        yield from (f"{stage} reply hit the token cap" for stage in self._replies.capped)
        if self._uncapped:
            yield "no token cap sent: Mem0 takes the model's name for a reasoning model's"


def _connect(root: Path, endpoints: Endpoints, limits: Limits, replies: Replies) -> Any:
    """Mem0's `Memory` on the store in `root`."""
    chat_config = {
        "model": endpoints.chat_model,
        "api_key": endpoints.api_key,
        "openai_base_url": endpoints.chat_url,
        "temperature": 0.0,
        "max_tokens": limits.max_output_tokens,
        "response_callback": replies.take,
    }
    embed_config = {
        "model": endpoints.embed_model,
        "api_key": endpoints.api_key,
        "openai_base_url": endpoints.embed_url,
    }
    store_config = {
        "collection_name": COLLECTION,
        "embedding_model_dims": endpoints.embed_dims,
        "path": str(root / "qdrant"),
        "on_disk": True,
    }
    return Memory.from_config(
        {
            "llm": {"provider": "openai", "config": chat_config},
            "embedder": {"provider": "openai", "config": embed_config},
            "vector_store": {"provider": "qdrant", "config": store_config},
            "history_db_path": str(root / "history.db"),
        }
    )


def _choice(options: dict[str, Any], key: str, known: tuple[str, ...]) -> str:
    for name in options:
        if name != key:
            raise ValueError(f"unknown option {name!r} of mem0, known: {key}")
    value = options.get(key, known[0])
    if value not in known:
        raise ValueError(f"option {key} of mem0 is one of {', '.join(known)}, not {value!r}")
    return str(value)


def chat(unit: Unit, roles: str = ROLES[0]) -> list[dict[str, str]]:
    """The unit as chat messages: speakers and, where it changes, the date stand in the text."""
    if not unit.turns:
        return [{"role": "user", "content": _utf8(unit.text)}]
    messages, shown = [], None
    for turn in unit.turns:
        date = f"[{_date(turn.at)}] " if turn.at and turn.at != shown else ""
        shown = turn.at or shown
        named = turn.speaker and turn.speaker.casefold() != turn.role
        text = f"{turn.speaker}: {turn.text}" if named else turn.text
        messages.append({"role": _role(turn, roles), "content": _utf8(date + text)})
    return messages


def _utf8(text: str) -> str:
    """The text without lone surrogates, which no request can carry."""
    return text.encode("utf-8", "replace").decode()


def _role(turn: Turn, roles: str) -> str:
    """Mem0 extracts from user messages only, so under "people" every person speaks as one."""
    if roles == "given" or turn.speaker.casefold() in ("", "assistant"):
        return turn.role
    return "user"


def _date(at: str) -> str:
    """`8 May 2023, 13:56`, without the time where `at` has none."""
    moment = datetime.fromisoformat(at)
    day = f"{moment.day} {moment:%B %Y}"
    return day if len(at) <= len("2023-05-08") else f"{day}, {moment:%H:%M}"


class ErrorLog(logging.Handler):
    """Keeps what failed where Mem0 logs an error instead of raising it; texts are left out."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage().partition(":")[0][:100])


class Replies:
    """What the model replied during one unit, and what Mem0 logged as errors."""

    def __init__(self) -> None:
        self.errors = ErrorLog()
        self.clear()

    def clear(self) -> None:
        self.extract: str | None = None
        self.decide: str | None = None
        self.nothing_known = False
        self.capped: list[str] = []
        self.errors.lines.clear()

    def take(self, llm: Any, response: Any, params: dict[str, Any]) -> None:
        """Mem0's response callback. Only the extraction prompt has a system message."""
        stage = "extract" if params["messages"][0]["role"] == "system" else "decide"
        self.nothing_known = NOTHING_KNOWN in params["messages"][0]["content"]
        choice = response.choices[0]
        setattr(self, stage, choice.message.content or "")
        if choice.finish_reason == "length":
            self.capped.append(stage)

    def losses(self, done: int) -> list[tuple[int, str]]:
        """(pieces, reason) of what Mem0 dropped without raising, `done` actions carried out."""
        found = list(lost_pieces(self.extract, self.decide, self.nothing_known, done))
        told = self.errors.lines[0] if self.errors.lines else None
        if told and not any(count for count, _ in found):
            found.append((1, "Mem0 logged an error"))
        return [(count, f"{why} ({told})" if told and count else why) for count, why in found]


def lost_pieces(
    extract: str | None, decide: str | None, nothing_known: bool, done: int
) -> Iterator[tuple[int, str]]:
    """README.md, "Losses", as code: from the two replies and the number of actions carried out."""
    facts = _facts(_read(extract))
    if facts is None:
        yield 1, "extract reply without usable facts"
        return
    if isinstance(facts, str):
        yield 0, "facts came as one text, taken letter by letter"
    shapeless = sum(isinstance(fact, dict) and _fact(fact) is None for fact in facts)
    if shapeless:
        yield shapeless, "fact of unknown shape"
    kept = {_fact(fact) for fact in facts} - {None, ""}
    if not kept:
        return
    answer = _read(decide)
    actions = answer.get("memory") if isinstance(answer, dict) else None
    if not isinstance(actions, list) or not actions:
        yield len(kept), "facts without a decision"
        return
    wanted = sum(not (isinstance(a, dict) and a.get("event") == "NONE") for a in actions)
    if wanted == 0 and nothing_known:
        yield len(kept), "facts judged known where nothing is known"
    elif wanted > done:
        yield wanted - done, "action not carried out"


def _facts(reply: Any) -> list[Any] | dict[str, Any] | str | None:
    """What Mem0 iterates over as facts; None where it gives up on the reply."""
    if not isinstance(reply, dict) or "facts" not in reply:
        return None
    facts = reply["facts"] or []
    return facts if isinstance(facts, (list, dict, str)) else None


def _fact(fact: Any) -> Any:
    """The text Mem0 takes from one extracted fact; None where it skips it with a warning."""
    if isinstance(fact, dict):
        return fact.get("fact") or fact.get("text")
    return fact if isinstance(fact, str) else str(fact)


def _read(reply: str | None) -> Any:
    """The JSON value Mem0 finds in a reply (bare, fenced or in prose), None where it finds none."""
    for find in (remove_code_blocks, extract_json):
        try:
            return json.loads(find(reply or ""), strict=False)
        except ValueError:
            continue
    return None
