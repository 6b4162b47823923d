"""How much other work was in the way: pressure stall, stolen time and load of the whole machine."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Contention:
    """Cumulative seconds of the machine at one moment, or between two; None is unknown."""

    stall_s: float | None
    """Wall time in which some task was ready and had no core (PSI `some`)."""
    steal_s: float | None
    """Core seconds that a hypervisor gave to others."""
    busy_s: float | None
    """Core seconds spent on anything, this program included."""
    idle_s: float | None

    def since(self, before: Contention) -> Contention:
        """What came to pass between `before` and this one."""

        def minus(after_s: float | None, before_s: float | None) -> float | None:
            return None if after_s is None or before_s is None else after_s - before_s

        return Contention(
            minus(self.stall_s, before.stall_s),
            minus(self.steal_s, before.steal_s),
            minus(self.busy_s, before.busy_s),
            minus(self.idle_s, before.idle_s),
        )


def read(proc: Path = Path("/proc")) -> Contention:
    """The machine's counters now; some 15 us. What the kernel does not offer is None."""
    times = _cpu_times(proc / "stat")
    if times is None:
        return Contention(stall_s(proc), None, None, None)
    user, nice, system, idle, iowait, irq, softirq, steal = times
    busy = user + nice + system + irq + softirq
    return Contention(stall_s(proc), steal, busy, idle + iowait)


def stall_s(proc: Path = Path("/proc")) -> float | None:
    """Total of the `some` line of CPU pressure, seconds; None without PSI in the kernel."""
    with suppress(OSError, ValueError, IndexError):
        line = (proc / "pressure" / "cpu").read_text().splitlines()[0]
        return int(line.rpartition("total=")[2]) / 1e6
    return None


def _cpu_times(path: Path) -> list[float] | None:
    """The first eight columns of the machine's CPU line, seconds."""
    with suppress(OSError, ValueError):
        with path.open() as file:
            fields = file.readline().split()
        if fields and fields[0] == "cpu" and len(fields) >= 9:
            return [int(value) * _TICK_S for value in fields[1:9]]
    return None
