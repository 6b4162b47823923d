"""What was measured on: processor, memory, system, versions, this checkout."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_FEATURES = (
    "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "avx_vnni",
    "amx_tile", "amx_int8", "amx_bf16",
)  # fmt: skip
_PACKAGES = ("torch", "numpy", "transformers", "agentmem-profiler")


def facts() -> dict[str, Any]:
    """Everything that a reader of the figures needs to place them."""
    info = Path("/proc/cpuinfo").read_text()
    fields = {
        key.strip(): value.strip()
        for key, _, value in (line.partition(":") for line in info.splitlines())
    }
    flags = set(fields.get("flags", "").split())
    return {
        "processor": fields.get("model name", platform.processor()),
        "family_model": f"{fields.get('cpu family')}/{fields.get('model')}",
        "features": [name for name in _FEATURES if name in flags],
        "virtual": "hypervisor" in flags,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "huge_pages": chosen(Path("/sys/kernel/mm/transparent_hugepage/enabled")),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "checkout": _checkout(),
        "load_average": os.getloadavg()[0],
    }


def chosen(path: Path) -> str | None:
    """The setting in brackets of a kernel file such as `always [madvise] never`."""
    try:
        words = path.read_text().split()
    except OSError:
        return None
    return next((w.strip("[]") for w in words if w.startswith("[")), None)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _checkout() -> str | None:
    """Commit, with a + where files differ from it."""
    try:
        commit = _git("rev-parse", "--short", "HEAD")
        return commit + ("+" if _git("status", "--porcelain", "agentmem", "native") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()
