"""Energy of NVIDIA devices through NVML, when its Python binding is installed and answers.

Where every device has an energy counter the counters are read (`counter`); where one has none the
power of all is integrated by the trapezoid rule at every tick (`integrated_power`).
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from agentmem.errors import UsageError
from agentmem.meters.base import EnergyScope, EnergySource

INSTALL = "pip install 'agentmem-profiler[nvml]'"


def load() -> ModuleType:
    """The NVML binding, initialised. Raises UsageError that says why it cannot be used."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError as error:
        raise UsageError(f"no NVML binding: {INSTALL}") from error
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise UsageError(f"NVML does not start: {error}") from error
    return nvml


class NvmlEnergy:
    """Joules of some devices together, all of them by default. Raises UsageError without any.

    Safe to tick from one thread and read from another.
    """

    name = "nvml"
    scope: EnergyScope | None = "device"

    def __init__(
        self,
        nvml: Any,
        devices: Sequence[int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._nvml, self._clock, self._lock = nvml, clock, threading.Lock()
        try:
            indices = range(nvml.nvmlDeviceGetCount()) if devices is None else devices
            self._handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in indices]
        except nvml.NVMLError as error:
            raise UsageError(f"NVML lists no device: {error}") from error
        if not self._handles:
            raise UsageError("NVML lists no device")
        self.devices = len(self._handles)
        self._total_j = 0.0
        self._lost = False
        self._counters_mj = self._read_counters()
        self.source: EnergySource = "counter" if self._counters_mj else "integrated_power"
        self._last_s, self._last_w = clock(), 0.0 if self._counters_mj else self._first_power_w()

    def read(self) -> float | None:
        """Joules since opening; None once a device has stopped answering."""
        self.tick()
        with self._lock:
            return None if self._lost else self._total_j

    def tick(self) -> None:
        """Take the counters' progress, or integrate power since the last tick."""
        with self._lock:
            if self._lost:
                return
            try:
                if self._counters_mj:
                    self._advance_counters()
                else:
                    self._integrate()
            except self._nvml.NVMLError:
                self._lost = True

    def close(self) -> None:
        self._nvml.nvmlShutdown()

    def _read_counters(self) -> list[int]:
        """Counters in millijoules since the driver was loaded; empty when a device has none."""
        try:
            return [self._nvml.nvmlDeviceGetTotalEnergyConsumption(h) for h in self._handles]
        except self._nvml.NVMLError:
            return []

    def _advance_counters(self) -> None:
        now_mj = [self._nvml.nvmlDeviceGetTotalEnergyConsumption(h) for h in self._handles]
        steps = [now - last for now, last in zip(now_mj, self._counters_mj, strict=True)]
        # A counter that fell was reset with its driver; what it held is lost, and so are we.
        self._lost = any(step < 0 for step in steps)
        self._total_j += sum(steps) / 1e3
        self._counters_mj = now_mj

    def _integrate(self) -> None:
        now_s, now_w = self._clock(), self._power_w()
        self._total_j += (now_s - self._last_s) * (now_w + self._last_w) / 2
        self._last_s, self._last_w = now_s, now_w

    def _first_power_w(self) -> float:
        try:
            return self._power_w()
        except self._nvml.NVMLError as error:
            raise UsageError(f"the device tells neither energy nor power: {error}") from error

    def _power_w(self) -> float:
        return float(sum(self._nvml.nvmlDeviceGetPowerUsage(h) for h in self._handles) / 1e3)
