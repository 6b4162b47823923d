"""What every meter answers to, what its figures look like, and the null objects.

Counters only grow; a caller reads one before and after a piece of work and takes the difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from agentmem.errors import AccountingError

EnergySource = Literal["counter", "integrated_power", "model", "none"]
EnergyScope = Literal["device", "package", "process", "host"]

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """Counters of a process, or of a process tree, at one moment. None is unknown."""

    cpu_s: float
    """User and system time since the process started, children that were waited for included."""
    wait_s: float | None
    """Time its threads were ready to run and had no core (contention)."""
    rss_bytes: int
    peak_rss_bytes: int | None
    """Largest resident set so far; for a tree a lower bound, see `meters.tree`."""
    read_bytes: int | None
    """Fetched from storage; what the page cache served is not in it."""
    write_bytes: int | None
    threads: int | None
    processes: int = 1


@dataclass(frozen=True, slots=True)
class Spent:
    """What a process used between two readings; None where either reading lacks it."""

    cpu_s: float | None = None
    wait_s: float | None = None
    read_bytes: int | None = None
    write_bytes: int | None = None


def _minus(after: Number | None, before: Number | None) -> Number | None:
    return None if after is None or before is None else after - before


def spent(before: ProcessReading | None, after: ProcessReading | None) -> Spent:
    """Difference of two readings of one process; a process gone at either end gives unknowns."""
    if before is None or after is None:
        return Spent()
    return Spent(
        cpu_s=after.cpu_s - before.cpu_s,
        wait_s=_minus(after.wait_s, before.wait_s),
        read_bytes=_minus(after.read_bytes, before.read_bytes),
        write_bytes=_minus(after.write_bytes, before.write_bytes),
    )


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules with where they come from. Different origins refuse to be added (R6)."""

    energy_j: float | None
    source: EnergySource
    scope: EnergyScope | None

    def __add__(self, other: Energy) -> Energy:
        """Sum of two figures of one origin; unknown when either is."""
        if (self.source, self.scope) != (other.source, other.scope):
            raise AccountingError(
                f"energy of different origin cannot be added: {self.source}/{self.scope} "
                f"and {other.source}/{other.scope}"
            )
        known = self.energy_j is not None and other.energy_j is not None
        total = (self.energy_j or 0.0) + (other.energy_j or 0.0)
        return Energy(total if known else None, self.source, self.scope)


class EnergyMeter(Protocol):
    """A cumulative joule counter of one origin; ticked by one thread and read by another."""

    name: str
    source: EnergySource
    scope: EnergyScope | None

    def read(self) -> float | None:
        """Joules since the meter was opened; None when unknown."""
        ...

    def tick(self) -> None:
        """Called several times a second by the sampler: integrates power, catches wrap-around."""
        ...

    def close(self) -> None: ...


class NoEnergy:
    """Stands where no joule can be read: everything it says is unknown."""

    name = "none"
    source: EnergySource = "none"
    scope: EnergyScope | None = None

    def read(self) -> float | None:
        return None

    def tick(self) -> None:
        pass

    def close(self) -> None:
        pass


class NoSampler:
    """Stands where process counters cannot be read (no /proc) or are not wanted."""

    def watch(self, role: str, pid: int, *, tree: bool = True) -> None:
        pass

    def unwatch(self, pid: int) -> None:
        pass

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def reading(self, target: int | str) -> ProcessReading | None:
        return None
