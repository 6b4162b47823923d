"""Run-queue wait of a whole process, from the schedstat file of each of its threads.

/proc/<pid>/schedstat speaks of the first thread alone, so every thread is read. A thread that has
ended keeps its last value, so that the sum never falls.
"""

from __future__ import annotations

import os
from contextlib import suppress

_KEPT_THREADS = 64
"""Threads with a kept descriptor; more than these are opened at every read."""


class ThreadWaits:
    """Sum of the waits of all threads of one process, present and past."""

    def __init__(self, pid: int) -> None:
        self._folder = f"/proc/{pid}/task"
        self._fds: dict[int, int | None] = {}
        self._last_ns: dict[int, int] = {}
        self._ended_ns = 0

    def read(self, threads: int) -> float | None:
        """Seconds so far; `threads` is how many there are now. None where not accounted."""
        if threads != len(self._last_ns):
            self._list()
        for tid in list(self._last_ns):
            wait_ns = self._wait_ns(tid)
            if wait_ns is None:
                self._forget(tid)
            else:
                self._last_ns[tid] = wait_ns
        if not self._last_ns and not self._ended_ns:
            return None
        return (self._ended_ns + sum(self._last_ns.values())) / 1e9

    def close(self) -> None:
        """Give the descriptors back."""
        for tid in list(self._last_ns):
            self._forget(tid)

    def _list(self) -> None:
        present: set[int] = set()
        with suppress(OSError):
            present = set(map(int, os.listdir(self._folder)))  # noqa: PTH208 - names alone
        for tid in self._last_ns.keys() - present:
            self._forget(tid)
        for tid in present - self._last_ns.keys():
            with suppress(OSError):
                keep = len(self._fds) < _KEPT_THREADS
                self._fds[tid] = self._open(tid) if keep else None
                self._last_ns[tid] = 0

    def _open(self, tid: int) -> int:
        return os.open(f"{self._folder}/{tid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def _wait_ns(self, tid: int) -> int | None:
        kept = self._fds.get(tid)
        try:
            fd = self._open(tid) if kept is None else kept
            try:
                return int(os.pread(fd, 128, 0).split()[1])
            finally:
                if kept is None:
                    os.close(fd)
        except (OSError, IndexError):
            return None

    def _forget(self, tid: int) -> None:
        fd = self._fds.pop(tid, None)
        if fd is not None:
            os.close(fd)
        self._ended_ns += self._last_ns.pop(tid)
