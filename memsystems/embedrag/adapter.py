"""Dense retrieval over passages: exact search, one faiss index per user."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import faiss
import numpy as np

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

from .embedder import Embedder
from .vectors import UserIndex, VectorLog


class EmbedRag(MemorySystem):
    """Vectors are written before the record that names them: a record never lacks its vectors.

    A question may be asked while a unit is constructed: it sees the store before or after it, and
    the requests of the two have URLs of their own.
    """

    def open(self, dir: str, endpoints: Endpoints, limits: Limits) -> None:
        self._threads = int(limits.options.get("threads", 1))
        faiss.omp_set_num_threads(self._threads)
        self._lock = threading.Lock()
        self.dir = dir
        self._dims = endpoints.embed_dims
        self._passage_chars = int(limits.options.get("passage_chars", 1000))
        batch = int(limits.options.get("embed_batch", 128))
        self._writer, self._asker = (
            Embedder(endpoints.for_operation(verb), batch, limits.request_timeout_s)
            for verb in ("construct", "retrieve")
        )
        self._file = RecordFile(Path(dir, "records.jsonl"))
        self._load()

    def construct(self, unit: Unit) -> Stored:
        started = time.perf_counter()
        found = passages(unit, self._passage_chars)
        cut_before = self._writer.cut
        vectors = self._writer.embed([p.text for p in found])
        with self._lock:
            self._log.append(vectors)
            record = {
                "unit": unit.unit_id,
                "user": unit.user,
                "log": self._log.path.name,
                "passages": [[p.shown, p.source_ids] for p in found],
            }
            self._file.append(record)
            self._add(record, vectors)
            version = self._file.version
        cut = self._writer.cut - cut_before
        note = f"{cut} texts longer than the embedder's window, embedded in halves" if cut else None
        took = time.perf_counter() - started
        return Stored(added=len(found), store_version=version, visible_at=took, note=note)

    def flush(self) -> None:
        self._log.sync()
        self._file.sync()

    def retrieve(self, user: str, question: str, k: int) -> Retrieved:
        if user not in self._indexes or not question.strip():
            return Retrieved((), self._file.version)
        vector = self._asker.embed([question])
        faiss.omp_set_num_threads(self._threads)  # counts for the calling thread alone
        with self._lock:
            index = self._indexes.get(user)
            found = index.search(vector, k) if index else []
            entries = [Entry(*self._entry(i, score)) for i, score in found]
            return Retrieved(tuple(entries), self._file.version)

    def forget(self, user: str | None = None, unit_ids: tuple[str, ...] = ()) -> int:
        """A new vector file is written first; the records that name it replace the old at once."""
        kept_records: list[dict[str, Any]] = []
        kept_rows: list[int] = []
        row = removed = records = 0
        for record in self._file.read():
            records += 1
            rows = range(row, row + len(record["passages"]))
            row = rows.stop
            if _selected(record, user, unit_ids):
                removed += len(rows)
            else:
                kept_records.append(record)
                kept_rows += rows
        if records == len(kept_records):
            return 0
        vectors = self._log.read()[kept_rows]
        name = f"vectors-{self._file.version + 1}.f32"
        Path(self.dir, name).write_bytes(vectors.astype("<f4").tobytes())
        with self._lock:
            self._file.rewrite({**record, "log": name} for record in kept_records)
            self._log.close()
            self._load()
        return removed

    def footprint(self) -> dict[str, int]:
        return {
            "vectors": self._log.path.stat().st_size,
            "records": self._file.path.stat().st_size,
        }

    def close(self) -> None:
        self._log.close()
        self._file.close()

    def _load(self) -> None:
        """Open the vector file that the records name, delete others, and fill the indexes."""
        records = list(self._file.read())
        rows = sum(len(record["passages"]) for record in records)
        name = records[-1]["log"] if records else "vectors-0.f32"
        self._log = VectorLog(Path(self.dir, name), self._dims, rows)
        for other in Path(self.dir).glob("vectors-*.f32"):
            if other.name != name:
                other.unlink()
        self._indexes: dict[str, UserIndex] = {}
        self._entries: list[tuple[str, tuple[str, ...] | None]] = []
        vectors = self._log.read()
        for record in records:
            start = len(self._entries)
            self._add(record, vectors[start : start + len(record["passages"])])

    def _add(self, record: dict[str, Any], vectors: np.ndarray) -> None:
        start = len(self._entries)
        for shown, ids in record["passages"]:
            self._entries.append((shown, None if ids is None else tuple(ids)))
        index = self._indexes.setdefault(record["user"], UserIndex(self._dims))
        index.add(vectors, list(range(start, len(self._entries))))

    def _entry(self, number: int, score: float) -> tuple[str, float, tuple[str, ...] | None]:
        shown, ids = self._entries[number]
        return shown, score, ids


def _selected(record: dict[str, Any], user: str | None, unit_ids: tuple[str, ...]) -> bool:
    return user in (None, record["user"]) and (not unit_ids or record["unit"] in unit_ids)
