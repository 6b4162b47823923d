"""Counters of one process, read from /proc through file descriptors that are kept open.

A kept descriptor belongs to the process it was opened for: once that process is gone every read
fails, even when its number has been given to another. CPU time comes from the process's own CPU
clock (nanoseconds); children that it waited for come from /proc/<pid>/stat in clock ticks (10 ms).
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agentmem.meters.base import ProcessReading
from agentmem.meters.waits import ThreadWaits

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_CPUCLOCK_SCHED = 2


@dataclass(frozen=True, slots=True)
class Stat:
    """The fields of /proc/<pid>/stat that are used here."""

    state: str
    parent: int
    group: int
    session: int
    cpu_s: float
    children_cpu_s: float
    threads: int
    started_ticks: int


def parse_stat(text: bytes) -> Stat:
    """Read a stat line. The command's name may hold spaces and brackets, so count from its end."""
    fields = text[text.rindex(b")") + 2 :].split(maxsplit=20)
    utime, stime, cutime, cstime = map(int, fields[11:15])
    return Stat(
        state=fields[0].decode(),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        cpu_s=(utime + stime) * _TICK_S,
        children_cpu_s=(cutime + cstime) * _TICK_S,
        threads=int(fields[17]),
        started_ticks=int(fields[19]),
    )


class ProcessReader:
    """Reads one process repeatedly and cheaply. Raises OSError when there is no such process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.stat: Stat | None = None
        self._stat_fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        self._statm_fd = _open_or_none(f"/proc/{pid}/statm")
        self._io_fd = _open_or_none(f"/proc/{pid}/io")
        self._waits = ThreadWaits(pid)

    def read(self, *, peak: bool = True, reaped: bool = True) -> ProcessReading | None:
        """All counters now; None once the process has been waited for and is gone.

        Without `peak` the resident peak is left out (it costs more than the rest together);
        without `reaped` the CPU time of children that it waited for is left out. The byte counters
        always include such children: the kernel adds them and keeps no record of having done so.
        """
        try:
            own_s = _clock_s(self.pid)
            self.stat = stat = parse_stat(os.pread(self._stat_fd, 1024, 0))
        except OSError:
            self.stat = None
            return None
        read_bytes, write_bytes = self._io()
        return ProcessReading(
            cpu_s=(stat.cpu_s if own_s is None else own_s) + (stat.children_cpu_s * reaped),
            wait_s=self._waits.read(stat.threads),
            rss_bytes=self._rss(),
            peak_rss_bytes=peak_rss(self.pid) if peak else None,
            read_bytes=read_bytes,
            write_bytes=write_bytes,
            threads=stat.threads,
        )

    @property
    def running(self) -> bool:
        """Whether the last read found it alive; a dead process not yet waited for is not."""
        return self.stat is not None and self.stat.state not in "ZX"

    def close(self) -> None:
        """Give the descriptors back."""
        for fd in (self._stat_fd, self._statm_fd, self._io_fd):
            if fd is not None:
                os.close(fd)
        self._waits.close()

    def _rss(self) -> int:
        if self._statm_fd is None:
            return 0
        with suppress(OSError):
            return int(os.pread(self._statm_fd, 128, 0).split()[1]) * _PAGE_BYTES
        return 0

    def _io(self) -> tuple[int | None, int | None]:
        """Bytes read from and written to storage; unknown without the right to look."""
        if self._io_fd is None:
            return None, None
        with suppress(OSError, ValueError):
            words = os.pread(self._io_fd, 512, 0).split()
            # Names and values alternate, and "write_bytes:" is not "cancelled_write_bytes:".
            return (
                int(words[words.index(b"read_bytes:") + 1]),
                int(words[words.index(b"write_bytes:") + 1]),
            )
        return None, None


def open_reader(pid: int) -> ProcessReader | None:
    """A reader, or None when there is no such process."""
    with suppress(OSError):
        return ProcessReader(pid)
    return None


def read(pid: int) -> ProcessReading | None:
    """One reading of one process; None when it does not exist or has ended."""
    reader = open_reader(pid)
    if reader is None:
        return None
    try:
        reading = reader.read()
        return reading if reader.running else None
    finally:
        reader.close()


def peak_rss(pid: int) -> int | None:
    """Largest resident set of a process so far, bytes (VmHWM)."""
    return _kilobytes(Path(f"/proc/{pid}/status"), b"VmHWM:")


def pss(pid: int) -> int | None:
    """Resident set with shared pages divided among their users, bytes.

    Walks the page tables: from 0.1 ms for a small process to tens of ms for gigabytes, so it is
    read at the ends of phases and never by the sampler.
    """
    return _kilobytes(Path(f"/proc/{pid}/smaps_rollup"), b"Pss:")


def reset_peak(pid: int) -> bool:
    """Start the resident peak anew, to have one per phase; False when that is not permitted."""
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _kilobytes(path: Path, name: bytes) -> int | None:
    with suppress(OSError):
        for line in path.read_bytes().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    return None


def _clock_s(pid: int) -> float | None:
    """The process's CPU clock; ids of such clocks are made from the pid by a fixed rule."""
    with suppress(OSError):
        return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)
    return None


def _open_or_none(path: str) -> int | None:
    with suppress(OSError):
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return None
