"""Counters of a process and everything it started, as one reading that never falls.

A process belongs to a tree when its parent does, or when it is in the root's process group or
session (a daemon that detached from its parent, but not from those). Once in, it stays in. The
kernel adds a child's CPU time and bytes to its parent when the parent waits for it; for children
that nobody waits for, the sum would fall, and what fell is carried on. The peak of a tree is the
larger of the largest single peak and the largest sum seen at a sample: a lower bound.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace

from agentmem.meters.base import ProcessReading
from agentmem.meters.process import ProcessReader, Stat, open_reader, parse_stat, reset_peak

_PASSES = 3


def scan() -> dict[int, Stat]:
    """Every process of the machine, by pid; some 10 us each."""
    found: dict[int, Stat] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - names alone are cheaper than paths
        if name.isdigit():
            try:
                fd = os.open(f"/proc/{name}/stat", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                found[int(name)] = parse_stat(os.read(fd, 1024))
            except (OSError, ValueError):
                pass
            finally:
                os.close(fd)
    return found


def members(
    root: int, table: dict[int, Stat], known: Collection[int] = (), apart: Collection[int] = ()
) -> set[int]:
    """Pids of the tree under `root`, given a scan, who was in it before and who never is."""
    inside = {root, *known} & table.keys()
    if root in table:
        inside |= {p for p, s in table.items() if root in (s.group, s.session)}
    inside -= set(apart)
    while True:
        more = {p for p, s in table.items() if s.parent in inside} - inside - set(apart)
        if not more:
            return inside
        inside |= more


class ProcessTree:
    """Reads a root process and its descendants together. Raises OSError without a root.

    With `alone` it is the root by itself: its children are somebody else's business.
    """

    def __init__(self, pid: int, *, alone: bool = False) -> None:
        self.pid = pid
        self.alone = alone
        self._readers = {pid: ProcessReader(pid)}
        self._last: dict[int, ProcessReading] = {}
        self._sum: ProcessReading | None = None
        self._carried = _Carried()
        self._peak = 0

    def adopt(self, table: dict[int, Stat], apart: Collection[int] = ()) -> None:
        """Take in the members that a scan shows, those of the trees under `apart` left out."""
        if self.alone:
            return
        known = [p for p, r in self._readers.items() if _same(r.stat, table.get(p))]
        for pid in members(self.pid, table, known, apart):
            if pid not in self._readers:
                reader = open_reader(pid)
                if reader is not None:
                    self._readers[pid] = reader

    @property
    def pids(self) -> set[int]:
        """Members at the last reading, the dead but not yet waited for included."""
        return set(self._readers)

    def reset_peak(self) -> bool:
        """Forget the peak so far; False, and nothing forgotten, where the kernel refuses."""
        cleared = [reset_peak(pid) for pid, r in self._readers.items() if r.running]
        if not all(cleared):
            return False
        self._peak = 0
        return True

    def read(self, *, peak: bool = True) -> ProcessReading | None:
        """The sum over all members; None when none is running any more."""
        for _ in range(_PASSES):
            if not self._pass(peak):
                break
        running = sum(reader.running for reader in self._readers.values())
        if not running:
            return None
        self._sum = self._total(running)
        return self._sum

    def _pass(self, peak: bool) -> bool:
        """Read every member; whether one of them has taken over a child's time meanwhile.

        Children come before their parents, so that a child that has vanished is in its parent. One
        that was read and then waited for would count twice; then the pass is repeated.
        """
        moved = False
        for reader in sorted(self._readers.values(), key=_age, reverse=True):
            before = reader.stat
            reading = reader.read(peak=peak, reaped=not self.alone)
            if reading is None:
                self._drop(reader.pid)
                continue
            self._last[reader.pid] = reading
            moved |= bool(
                before and reader.stat and reader.stat.children_cpu_s > before.children_cpu_s
            )
        return moved

    def close(self) -> None:
        """Give all descriptors back."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def _drop(self, pid: int) -> None:
        self._readers.pop(pid).close()
        gone = self._last.pop(pid, None)
        if gone is not None and gone.wait_s is not None:
            self._carried.wait_s += gone.wait_s

    def _total(self, running: int) -> ProcessReading:
        parts = list(self._last.values())
        resident = sum(p.rss_bytes for p in parts)
        self._peak = max([self._peak, resident, *(p.peak_rss_bytes or 0 for p in parts)])
        waits = [p.wait_s for p in parts if p.wait_s is not None]
        total = ProcessReading(
            cpu_s=sum(p.cpu_s for p in parts),
            wait_s=sum(waits) + self._carried.wait_s if waits else None,
            rss_bytes=resident,
            peak_rss_bytes=self._peak or None,
            read_bytes=_sum_known([p.read_bytes for p in parts]),
            write_bytes=_sum_known([p.write_bytes for p in parts]),
            threads=sum(p.threads or 0 for p in parts),
            processes=running,
        )
        return self._carried.apply(total, self._sum)


class _Carried:
    """What vanished members had used and no parent took over."""

    def __init__(self) -> None:
        self.wait_s = 0.0
        self._cpu_s = 0.0
        self._read = 0
        self._write = 0

    def apply(self, total: ProcessReading, before: ProcessReading | None) -> ProcessReading:
        """`total` plus what is carried, raised to `before` where it would fall."""
        cpu_s = total.cpu_s + self._cpu_s
        read, write = _plus(total.read_bytes, self._read), _plus(total.write_bytes, self._write)
        if before is not None:
            self._cpu_s += max(0.0, before.cpu_s - cpu_s)
            cpu_s = max(cpu_s, before.cpu_s)
            if read is not None and before.read_bytes is not None:
                self._read += max(0, before.read_bytes - read)
                read = max(read, before.read_bytes)
            if write is not None and before.write_bytes is not None:
                self._write += max(0, before.write_bytes - write)
                write = max(write, before.write_bytes)
        return replace(total, cpu_s=cpu_s, read_bytes=read, write_bytes=write)


def _age(reader: ProcessReader) -> tuple[int, int]:
    """Sort key: children come after their parents."""
    return (reader.stat.started_ticks if reader.stat else 0, reader.pid)


def _same(mine: Stat | None, seen: Stat | None) -> bool:
    """Whether a scanned process is the one a reader was opened for, not a later namesake."""
    return bool(mine and seen and mine.started_ticks == seen.started_ticks)


def _plus(value: int | None, more: int) -> int | None:
    return None if value is None else value + more


def _sum_known(values: list[int | None]) -> int | None:
    """Sum, or None when any part is unknown (R2)."""
    known = [v for v in values if v is not None]
    return sum(known) if values and len(known) == len(values) else None
