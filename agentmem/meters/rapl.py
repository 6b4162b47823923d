"""Energy of the CPU packages from the kernel's powercap tree (RAPL counters).

Only whole packages are summed: `core` and `uncore` are parts of them, `psys` holds them, and
`dram` stands beside them and is left out. The counters wrap around at a value the tree names
(minutes to an hour at full load); `tick` sees every wrap as long as it comes more often.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

from agentmem.meters.base import EnergyScope, EnergySource

POWERCAP = Path("/sys/class/powercap")


class RaplEnergy:
    """Joules of all CPU packages together. Raises OSError when no package can be read.

    Safe to tick from one thread and read from another.
    """

    name = "rapl"
    source: EnergySource = "counter"
    scope: EnergyScope | None = "package"

    def __init__(self, root: Path = POWERCAP) -> None:
        self._lock = threading.Lock()
        self._packages = [_Package(folder) for folder in packages(root)]
        if not self._packages:
            raise FileNotFoundError(f"no CPU package under {root}")

    def read(self) -> float | None:
        """Joules since opening; None once a package cannot be read any more."""
        self.tick()
        with self._lock:
            if any(package.lost for package in self._packages):
                return None
            return sum(package.total_uj for package in self._packages) / 1e6

    def tick(self) -> None:
        """Take the counters' progress, wrap-around included."""
        with self._lock:
            for package in self._packages:
                package.advance()

    def close(self) -> None:
        pass


class _Package:
    """One counter, unrolled."""

    def __init__(self, folder: Path) -> None:
        self.total_uj = 0
        self.lost = False
        self._counter = folder / "energy_uj"
        self._range_uj = int((folder / "max_energy_range_uj").read_text())
        self._last_uj = int(self._counter.read_text())

    def advance(self) -> None:
        try:
            now_uj = int(self._counter.read_text())
        except (OSError, ValueError):
            self.lost = True
            return
        step_uj = now_uj - self._last_uj
        # A fall is a wrap-around: the counter went on to the end of its range and began again.
        self.total_uj += step_uj if step_uj >= 0 else step_uj + self._range_uj
        self._last_uj = now_uj


def packages(root: Path = POWERCAP) -> list[Path]:
    """Folders of the CPU packages. The `-mmio` twins count the same joules and are left out."""
    found = []
    for folder in sorted(root.glob("intel-rapl:*")):
        with suppress(OSError):
            if (folder / "name").read_text().startswith("package"):
                found.append(folder)
    return found


def why_not(root: Path = POWERCAP) -> str | None:
    """Why the packages cannot be read, in words; None when they can."""
    if not root.is_dir():
        return f"{root} does not exist (a virtual machine, or no powercap driver)"
    found = packages(root)
    if not found:
        return f"{root} lists no CPU package"
    try:
        (found[0] / "energy_uj").read_text()
    except PermissionError:
        return f"{found[0].name}/energy_uj is readable by root only"
    except OSError as error:
        return f"{found[0].name}/energy_uj: {error.strerror}"
    return None
