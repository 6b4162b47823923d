"""No memory at all: the whole history goes into the prompt."""

from __future__ import annotations

import time
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
)


class LongContext(MemorySystem):
    """Keeps units in order and hands all of them over; `k` does not apply."""

    def open(self, dir: str, endpoints: Endpoints, limits: Limits) -> None:
        self.dir = dir
        self._file = RecordFile(Path(dir, "history.jsonl"))
        self._records = list(self._file.read())

    def construct(self, unit: Unit) -> Stored:
        started = time.perf_counter()
        record = {
            "unit": unit.unit_id,
            "user": unit.user,
            "text": unit.text,
            "ids": [turn.source_id for turn in unit.turns] or None,
        }
        self._file.append(record)
        self._records.append(record)
        took = time.perf_counter() - started
        return Stored(added=1, store_version=self._file.version, visible_at=took)

    def flush(self) -> None:
        self._file.sync()

    def retrieve(self, user: str, question: str, k: int) -> Retrieved:
        entries = tuple(
            Entry(r["text"], None, None if r["ids"] is None else tuple(r["ids"]))
            for r in self._records
            if r["user"] == user
        )
        return Retrieved(entries, self._file.version)

    def forget(self, user: str | None = None, unit_ids: tuple[str, ...] = ()) -> int:
        kept = [r for r in self._records if not _selected(r, user, unit_ids)]
        removed = len(self._records) - len(kept)
        if removed:
            self._file.rewrite(kept)
            self._records = kept
        return removed

    def footprint(self) -> dict[str, int]:
        return {"history": self._file.path.stat().st_size}

    def close(self) -> None:
        self._file.close()


def _selected(record: dict[str, Any], user: str | None, unit_ids: tuple[str, ...]) -> bool:
    return user in (None, record["user"]) and (not unit_ids or record["unit"] in unit_ids)
