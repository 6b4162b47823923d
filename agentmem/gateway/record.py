"""Writes a recording while calls are booked: append-only, one line per reply, one writer."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentmem.errors import DataError, UsageError
from agentmem.gateway.exchange import Exchange
from agentmem.gateway.record_format import FORMAT, dump, entry_of, parse_header


class Recording:
    """An open recording. `append` is called by the gateway's recorder thread alone.

    A line outlives a kill of the process as soon as `append` returns, and a power cut once `close`
    has returned. Raises UsageError for a file that cannot be taken, DataError for a full disk.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        """Begin a recording, or go on with the one whose header has the same `id`."""
        self.path = path
        self._fd = _open_locked(path)
        try:
            self._end = self._begin(header)
        except BaseException:
            os.close(self._fd)
            raise

    def append(self, ex: Exchange) -> None:
        """Add a finished exchange."""
        self._write(dump(entry_of(ex)))

    def close(self) -> None:
        if self._fd >= 0:
            os.fsync(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _begin(self, header: Mapping[str, Any]) -> int:
        """Cut a torn tail; write the header into a file that has none. Returns the file's end."""
        self._end = whole_end(self.path)
        os.ftruncate(self._fd, self._end)
        if self._end == 0:
            self._write({"agentmem_recording": FORMAT, **header})
            return self._end
        found = read_header(self.path)
        if found.get("id") == header["id"]:
            return self._end
        if holds_calls(self.path):
            raise UsageError(f"{self.path} holds another recording; choose another file")
        os.ftruncate(self._fd, 0)  # begun by a run that was killed before its first reply
        self._end = 0
        self._write({"agentmem_recording": FORMAT, **header})
        return self._end

    def _write(self, line: Mapping[str, Any]) -> None:
        raw = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
        data = raw.encode("utf-8", "surrogatepass") + b"\n"
        written = 0
        try:
            written = os.write(self._fd, data)
        except OSError as error:
            raise self._full(error.strerror) from error
        if written < len(data):  # take the part back, so that the last line stays whole
            os.ftruncate(self._fd, self._end)
            raise self._full("no space left")
        self._end += written

    def _full(self, why: str | None) -> DataError:
        return DataError(f"{self.path}: cannot write the recording: {why}; resume the run later")


def read_header(path: Path) -> dict[str, Any]:
    """Header of a recording; DataError when there is none."""
    try:
        with path.open("rb") as file:
            return parse_header(file.readline(), path)
    except OSError as error:
        raise DataError(f"{path}: cannot read the recording: {error.strerror}") from None


def holds_calls(path: Path) -> bool:
    """Whether a file is there that must not be written over: anything but a bare or torn header."""
    if not path.exists():
        return False
    try:
        with path.open("rb") as file:
            first = file.readline()
            begun = not first or first.startswith(b'{"agentmem_recording"')
            return bool(file.readline()) if begun else True
    except OSError as error:
        raise UsageError(f"cannot write the recording {path}: {error.strerror}") from None


def whole_end(path: Path) -> int:
    """Where the last whole line ends."""
    end = at = 0
    with path.open("rb") as file:
        for line in file:
            at += len(line)
            end = at if line.endswith(b"\n") else end
    return end


def _open_locked(path: Path) -> int:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"cannot write the recording {path}: {error.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise UsageError(f"{path} is being written by another run") from None
    return fd
