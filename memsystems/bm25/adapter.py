"""Lexical retrieval over passages, one index per user."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentmem.memory import (
    Endpoints,
    Entry,
    Limits,
    MemorySystem,
    RecordFile,
    Retrieved,
    Stored,
    Unit,
    passages,
)

from .index import Bm25Index


class Bm25(MemorySystem):
    """One record per unit on disk; the indexes live in memory and are rebuilt when opened.

    A question may be asked while a unit is constructed: each sees the store before or after it.
    """

    def open(self, dir: str, endpoints: Endpoints, limits: Limits) -> None:
        self.dir = dir
        self._passage_chars = int(limits.options.get("passage_chars", 1000))
        self._lock = threading.Lock()
        self._file = RecordFile(Path(dir, "records.jsonl"))
        self._rebuild(self._file.read())

    def construct(self, unit: Unit) -> Stored:
        started = time.perf_counter()
        found = passages(unit, self._passage_chars)
        record = {
            "unit": unit.unit_id,
            "user": unit.user,
            "passages": [[p.text, p.shown, p.source_ids] for p in found],
        }
        with self._lock:
            self._file.append(record)
            self._add(record)
            version = self._file.version
        took = time.perf_counter() - started
        return Stored(added=len(found), store_version=version, visible_at=took)

    def flush(self) -> None:
        self._file.sync()

    def retrieve(self, user: str, question: str, k: int) -> Retrieved:
        entries = []
        with self._lock:
            if user in self._indexes:
                for number, score in self._indexes[user].search(question, k):
                    shown, ids = self._shown[user][number]
                    entries.append(Entry(shown, score, ids))
            return Retrieved(tuple(entries), self._file.version)

    def forget(self, user: str | None = None, unit_ids: tuple[str, ...] = ()) -> int:
        records = list(self._file.read())
        kept = [r for r in records if not _selected(r, user, unit_ids)]
        removed = sum(len(r["passages"]) for r in records) - sum(len(r["passages"]) for r in kept)
        if len(kept) < len(records):
            with self._lock:
                self._file.rewrite(kept)
                self._rebuild(iter(kept))
        return removed

    def footprint(self) -> dict[str, int]:
        return {"records": self._file.path.stat().st_size}

    def close(self) -> None:
        self._file.close()

    def _rebuild(self, records: Iterator[Any]) -> None:
        self._indexes: dict[str, Bm25Index] = {}
        self._shown: dict[str, list[tuple[str, tuple[str, ...] | None]]] = {}
        for record in records:
            self._add(record)

    def _add(self, record: dict[str, Any]) -> None:
        index = self._indexes.setdefault(record["user"], Bm25Index())
        shown = self._shown.setdefault(record["user"], [])
        for text, display, ids in record["passages"]:
            index.add(text)
            shown.append((display, None if ids is None else tuple(ids)))


def _selected(record: dict[str, Any], user: str | None, unit_ids: tuple[str, ...]) -> bool:
    return user in (None, record["user"]) and (not unit_ids or record["unit"] in unit_ids)
