"""The journal: an append-only file of rows, one JSON object a line, that survives a kill.

Durability, in three steps. `write` hands a whole line to the kernel in one system call: it outlives
a kill of this process, not a power cut. `sync` (called at the end of every unit) makes everything
written so far outlive a power cut too. `close` syncs. A line counts once its newline is there, so a
kill in the middle of a write costs that line and no other.
"""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from agentmem import records
from agentmem.errors import AccountingError, DataError

_BLOCK_BYTES = 65536
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def encode(row: records.Row) -> bytes:
    """A row as its journal line. Raises AccountingError for a number that JSON cannot hold."""
    try:
        text = json.dumps(records.to_json(row), separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise AccountingError(f"a {type(row).__name__} row cannot be written: {error}") from error
    return text.encode() + b"\n"


class Journal:
    """Appends rows to `path`; safe from several threads, refuses a second writing process.

    `failure` keeps the first write error, for a caller whose rows are written by other threads.
    After it nothing more is written: a later, shorter row that still fits would leave a hole.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.failure: DataError | None = None
        self.rows_written = 0
        self._lock = threading.Lock()
        self._fd = _open_locked(self.path)
        _sync_folder(self.path.parent)
        self._end = os.fstat(self._fd).st_size
        if self._end and _tail_bytes(self._fd, self._end):
            os.close(self._fd)
            raise DataError(f"{self.path}: the last line is torn; resume the run to repair it")

    @classmethod
    def reopen(cls, path: Path) -> Journal:
        """Open an interrupted run's journal, after moving a torn last line to `<name>.torn`."""
        repair(Path(path))
        return cls(path)

    def write(self, row: records.Row) -> None:
        """Append one row. Raises DataError when the file system takes no more."""
        line = encode(row)
        with self._lock:
            if self.failure is not None:
                raise self.failure
            try:
                written = os.write(self._fd, line)
            except OSError as error:
                raise self._failed(error) from error
            if written < len(line):
                # The rest did not fit: take the part back, so that the last row stays whole.
                os.ftruncate(self._fd, self._end)
                raise self._failed(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
            self._end += written
            self.rows_written += 1

    def sync(self) -> None:
        """Make every row written so far durable; a few milliseconds, other writers go on."""
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Sync and close. Closing twice is allowed."""
        if self._fd < 0:
            return
        try:
            self.sync()
        finally:
            with self._lock:
                os.close(self._fd)
                self._fd = -1

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def _failed(self, error: OSError) -> DataError:
        advice = "free some space and resume the run" if error.errno in _FULL else "resume the run"
        failure = DataError(
            f"{self.path}: cannot write the journal: {error.strerror}; "
            f"earlier rows are whole, {advice}"
        )
        self.failure = self.failure or failure
        return failure


def iter_rows(path: Path) -> Iterator[records.Row]:
    """Rows of a journal in the order written, skipping a torn last line.

    Raises DataError for a missing file, and for a corrupt line, which it names.
    """
    with _open_for_reading(Path(path)) as file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                yield _decode(line, path, number)


def read_rows(path: Path) -> list[records.Row]:
    """All rows of a journal; see `iter_rows`."""
    return list(iter_rows(path))


def repair(path: Path) -> int:
    """Move the bytes of a torn last line to `<name>.torn`; how many there were."""
    if not path.exists():
        return 0
    fd = _open_locked(path)
    try:
        end = os.fstat(fd).st_size
        torn = _tail_bytes(fd, end)
        if torn:
            _keep(path.with_name(path.name + ".torn"), os.pread(fd, torn, end - torn))
            os.ftruncate(fd, end - torn)
            os.fsync(fd)
        return torn
    finally:
        os.close(fd)


def _open_for_reading(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot read the journal: {error.strerror}") from error


def _decode(line: bytes, path: Path, number: int) -> records.Row:
    try:
        found = json.loads(line[:-1])
    except ValueError as error:  # bad UTF-8, too
        at = f" at column {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        raise _corrupt(path, number, f"no JSON{at}") from error
    try:
        return records.from_json(found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _corrupt(path, number, _fault(found, error)) from error


def _corrupt(path: Path, number: int, what: str) -> DataError:
    return DataError(f"{path}: line {number} is corrupt: {what}")


def _fault(found: Any, error: Exception) -> str:
    """Why a JSON value is no row, in a few words."""
    if not isinstance(found, dict):
        return "no JSON object"
    name = found.get("row")
    if not isinstance(name, str):
        return "it does not say which row it is"
    if name not in records.ROW_TYPES:
        return f"unknown row type {name!r}"
    fields = dataclasses.fields(records.ROW_TYPES[name])
    needed = [f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING]
    missing = [field for field in needed if field not in found]
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    return f"a {name} row without {missing[0]!r}{more}" if missing else str(error)


def _open_locked(path: Path) -> int:
    """Open for appending and lock; the lock goes with the process, however it ends."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise DataError(f"{path}: cannot open the journal: {error.strerror}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise DataError(
            f"{path}: another process is writing this run; wait for it or stop it"
        ) from error
    return fd


def _tail_bytes(fd: int, end: int) -> int:
    """Bytes after the last newline of a file of `end` bytes."""
    start = end
    while start > 0:
        stop, start = start, max(0, start - _BLOCK_BYTES)
        newline = os.pread(fd, stop - start, start).rfind(b"\n")
        if newline >= 0:
            return end - (start + newline + 1)
    return end


def _sync_folder(folder: Path) -> None:
    """Make a new file's name durable as well as its bytes."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _keep(side: Path, torn: bytes) -> None:
    """Append torn bytes to the side file and make them durable before they leave the journal."""
    with side.open("ab") as file:
        file.write(torn + b"\n")
        file.flush()
        os.fsync(file.fileno())
