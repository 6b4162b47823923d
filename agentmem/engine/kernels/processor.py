"""What the processor says of itself."""

from functools import cache
from pathlib import Path


@cache
def cpu_flags() -> frozenset[str]:
    """Features of the first processor; empty where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.split() for line in lines if line.startswith("flags")), ()))
