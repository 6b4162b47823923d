"""Facts about the machine for a run's manifest: what the figures were measured on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from agentmem.meters import cgroup

_FLAGS = (
    "avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "avx512_fp16",
    "amx_tile", "amx_bf16", "amx_int8", "asimd", "bf16", "i8mm", "sve",
)  # fmt: skip
"""Instruction sets that decide how fast an inference kernel can be."""


def facts(proc: Path = Path("/proc")) -> dict[str, object]:
    """JSON object of the machine's facts; what cannot be found out is None."""
    cpu = _cpu(proc / "cpuinfo")
    return {
        "cpu_model": cpu.get("model name") or platform.processor() or None,
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "cpu_flags": _known_flags(cpu),
        "virtual_machine": "hypervisor" in cpu.get("flags", "").split() if cpu else None,
        "memory_bytes": _memory_bytes(proc / "meminfo"),
        "cgroup": asdict(cgroup.limits()),
        "kernel": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "torch": _version("torch"),
        "transparent_huge_pages": _huge_pages(),
    }


def _cpu(path: Path) -> dict[str, str]:
    """Fields of the first core; on Arm it has `Features` where x86 has `flags`."""
    with suppress(OSError):
        first = path.read_text().split("\n\n")[0]
        pairs = [line.partition(":") for line in first.splitlines()]
        return {name.strip(): value.strip() for name, _, value in pairs}
    return {}


def _known_flags(cpu: dict[str, str]) -> list[str]:
    present = set(cpu.get("flags", cpu.get("Features", "")).split())
    return [flag for flag in _FLAGS if flag in present]


def _memory_bytes(path: Path) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in path.read_text().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    return None


def _version(package: str) -> str | None:
    """Version of an installed package, without importing it."""
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None


def _huge_pages() -> str | None:
    """The active one of `always madvise never`, which the kernel prints in brackets."""
    with suppress(OSError, IndexError):
        text = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
        return text.split("[")[1].split("]")[0]
    return None
