"""What can be measured on this machine, each with how, or why not; for `agentmem doctor`."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass

from agentmem.errors import UsageError
from agentmem.meters import contention, nvml, process, rapl
from agentmem.meters.base import EnergyMeter


@dataclass(frozen=True, slots=True)
class Measurable:
    """One thing a run may want to know, and whether this machine tells."""

    what: str
    available: bool
    how: str
    """Where it is read when available, else the reason and what to do."""


def measurable() -> list[Measurable]:
    """All rows, in the order of a report; takes some milliseconds and changes nothing."""
    return [
        *_process_rows(os.getpid()),
        *_contention_rows(),
        _rapl_row(),
        _nvml_row(),
        Measurable(
            "energy, modelled", True, "CPU seconds x 2 / 4 / 8 W a core: a band, no reading"
        ),
    ]


def energy_meters() -> list[EnergyMeter]:
    """The energy meters that work here, opened; the caller closes those it does not use."""
    meters: list[EnergyMeter] = []
    with suppress(OSError, ValueError):
        meters.append(rapl.RaplEnergy())
    with suppress(UsageError):
        meters.append(nvml.NvmlEnergy(nvml.load()))
    return meters


def _process_rows(pid: int) -> list[Measurable]:
    reading = process.read(pid)
    if reading is None:
        reason = "/proc is not mounted or not Linux's: no process figures at all"
        return [Measurable("CPU time, memory and I/O of processes", False, reason)]
    clock_ns = time.clock_getres(time.CLOCK_PROCESS_CPUTIME_ID) * 1e9
    return [
        Measurable(
            "CPU time", True, f"process CPU clock, {clock_ns:.0f} ns; children by /proc stat"
        ),
        Measurable("resident memory", True, "/proc/PID/statm at 10 Hz, peak by VmHWM"),
        _row(
            "proportional memory (PSS)", process.pss(pid), "/proc/PID/smaps_rollup, at phase ends"
        ),
        _row("peak per phase", process.peak_rss(pid), "VmHWM, cleared by /proc/PID/clear_refs"),
        _row("disk reads and writes", reading.write_bytes, "/proc/PID/io, storage only"),
        _row("run-queue wait", reading.wait_s, "/proc/PID/task/*/schedstat"),
    ]


def _contention_rows() -> list[Measurable]:
    now = contention.read()
    return [
        _row("CPU pressure (PSI)", now.stall_s, "/proc/pressure/cpu"),
        _row("stolen time", now.steal_s, "/proc/stat; a hypervisor may report none"),
    ]


def _row(what: str, value: float | None, how: str) -> Measurable:
    if value is None:
        return Measurable(
            what, False, f"the kernel does not offer {how.split(',')[0].split(';')[0]}"
        )
    return Measurable(what, True, how)


def _rapl_row() -> Measurable:
    reason = rapl.why_not()
    if reason is not None:
        return Measurable("energy of the CPU package (RAPL)", False, reason)
    count = len(rapl.packages())
    how = f"{rapl.POWERCAP}, {count} package{'s' * (count > 1)}, whole machine"
    return Measurable("energy of the CPU package (RAPL)", True, how)


def _nvml_row() -> Measurable:
    what = "energy of the GPU (NVML)"
    try:
        meter = nvml.NvmlEnergy(nvml.load())
    except UsageError as error:
        return Measurable(what, False, str(error))
    meter.close()
    how = "energy counter" if meter.source == "counter" else "power integrated at 10 Hz"
    return Measurable(what, True, f"{how}, {meter.devices} device{'s' * (meter.devices > 1)}")
