"""Vectors on disk, appended, one float32 row per entry; and a flat faiss index per user."""

from __future__ import annotations

import os
from pathlib import Path

import faiss
import numpy as np


class VectorLog:
    """A file of rows of `dims` float32. Rows beyond those that records name are cut at opening."""

    def __init__(self, path: Path, dims: int, rows: int) -> None:
        self.path, self._dims = path, dims
        self._file = path.open("ab")
        size = rows * dims * 4
        if path.stat().st_size < size:
            raise ValueError(f"{path} holds fewer than {rows} vectors of {dims}")
        self._file.truncate(size)

    def read(self) -> np.ndarray:
        self._file.flush()
        return np.fromfile(self.path, np.float32).reshape(-1, self._dims)

    def append(self, vectors: np.ndarray) -> None:
        self._file.write(vectors.astype("<f4").tobytes())
        self._file.flush()

    def sync(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class UserIndex:
    """Exact inner product over one user's vectors, ids given by the caller."""

    def __init__(self, dims: int) -> None:
        self._index = faiss.IndexIDMap2(faiss.IndexFlatIP(dims))

    def add(self, vectors: np.ndarray, ids: list[int]) -> None:
        if ids:
            self._index.add_with_ids(vectors, np.array(ids, np.int64))

    def search(self, vector: np.ndarray, k: int) -> list[tuple[int, float]]:
        """(id, similarity), best first; ties go to the older entry."""
        count = min(k, self._index.ntotal)
        if count < 1:
            return []
        scores, ids = self._index.search(vector.reshape(1, -1), count)
        order = np.lexsort((ids[0], -scores[0]))
        return [(int(ids[0][i]), float(scores[0][i])) for i in order]
