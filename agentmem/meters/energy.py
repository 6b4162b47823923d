"""Which joules can be had on this machine: a counter, an integral of power, a model, or none.

One source is chosen for a run and its figures are never added to another's (R6). The model is not
a meter: it turns CPU seconds into a band of joules when a report asks for one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agentmem.meters.base import EnergyMeter, EnergyScope, EnergySource, NoEnergy


@dataclass(frozen=True, slots=True)
class Band:
    """A figure known only to lie somewhere: low and high bound it, mid is for one number."""

    low: float
    mid: float
    high: float

    def times(self, factor: float | None) -> Band | None:
        """The band scaled; unknown times anything is unknown."""
        if factor is None:
            return None
        return Band(self.low * factor, self.mid * factor, self.high * factor)


WATTS_PER_CORE = Band(2.0, 4.0, 8.0)
"""Power of one busy core of a server. Not measured here: general knowledge of parts with 60 to 100
cores at 300 to 400 W, halved downwards for a hyper-thread and doubled upwards for desktop parts."""


class ModelledEnergy(NoEnergy):
    """CPU seconds times watts a core, as a band. Nothing is read, so `read` stays unknown.

    Memory, idle cores, disks and power supplies are not in it.
    """

    name = "model"
    source: EnergySource = "model"
    scope: EnergyScope | None = "process"

    def __init__(self, watts_per_core: Band = WATTS_PER_CORE) -> None:
        self.watts_per_core = watts_per_core

    def joules(self, cpu_s: float | None) -> Band | None:
        """Joules of so many CPU seconds."""
        return self.watts_per_core.times(cpu_s)


@dataclass(frozen=True, slots=True)
class IdlePower:
    """What the machine draws when nothing is asked of it; a row of its own, never subtracted."""

    seconds: float
    energy_j: float | None
    source: EnergySource
    scope: EnergyScope | None

    @property
    def watts(self) -> float | None:
        """Mean power over the idle time."""
        return None if self.energy_j is None else self.energy_j / self.seconds


def idle_power(
    meter: EnergyMeter,
    seconds: float,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> IdlePower:
    """Read `meter` over `seconds` in which the caller does nothing; ticks it ten times a second."""
    before, began_s = meter.read(), clock()
    while (left_s := seconds - (clock() - began_s)) > 0:
        sleep(min(0.1, left_s))
        meter.tick()
    after, took_s = meter.read(), clock() - began_s
    known = before is not None and after is not None
    used = after - before if known else None  # type: ignore[operator]
    return IdlePower(took_s, used, meter.source, meter.scope)


def choose(meters: Iterable[EnergyMeter], *, engine_on_gpu: bool) -> EnergyMeter:
    """The one meter of a run: the device's when the engine runs on it, else the package's.

    A meter of the wrong part is worse than none: a GPU that idles says nothing of a CPU engine.
    Without the right one the run has the model.
    """
    wanted = "device" if engine_on_gpu else "package"
    for meter in meters:
        if meter.scope == wanted:
            return meter
    return ModelledEnergy()


def describe(meter: EnergyMeter, model: Band = WATTS_PER_CORE) -> dict[str, object]:
    """The `energy` part of a manifest; the model's band is in it even where a counter is read."""
    return {
        "source": meter.source,
        "scope": meter.scope,
        "meter": meter.name,
        "w_per_core": {"low": model.low, "mid": model.mid, "high": model.high},
    }
