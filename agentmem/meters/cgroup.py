"""Limits that a control group sets on this process: version 2, version 1, or none."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path("/sys/fs/cgroup")
_UNLIMITED_BYTES = 1 << 60
"""Version 1 writes "no limit" as the largest page-aligned number."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the group allows; None is no limit (or, for version "none", no group at all)."""

    version: Literal["v1", "v2", "none"]
    memory_bytes: int | None = None
    cpus: float | None = None


def limits(root: Path = ROOT, own: Path = Path("/proc/self/cgroup")) -> Limits:
    """The tightest limits on the way from this process's group up to the mount."""
    with suppress(OSError):
        paths = dict(_controllers(own.read_text()))
        if (root / "cgroup.controllers").exists():
            return _version_2(_upwards(root, paths.get("", "/")))
        if (root / "memory").is_dir() or (root / "cpu").is_dir():
            return _version_1(root, paths)
    return Limits("none")


def _controllers(text: str) -> list[tuple[str, str]]:
    """(controller, group path) pairs; the unified hierarchy is the controller ""."""
    lines = [line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2]
    return [(name, path) for _, names, path in lines for name in names.split(",")]


def _upwards(mount: Path, group: str) -> list[Path]:
    """Folders from the group to the mount; inside a container the group's own may be missing."""
    folder = mount / group.lstrip("/")
    chain = [folder, *folder.parents]
    return [f for f in chain if f == mount or mount in f.parents]


def _version_2(folders: list[Path]) -> Limits:
    memory = _smallest([_number(f / "memory.max") for f in folders])
    quotas = [_words(f / "cpu.max") for f in folders]
    cpus = [int(q[0]) / int(q[1]) for q in quotas if len(q) == 2 and q[0] != "max"]
    return Limits("v2", memory, min(cpus, default=None))


def _version_1(root: Path, paths: dict[str, str]) -> Limits:
    memory = [
        size
        for folder in _upwards(root / "memory", paths.get("memory", "/"))
        if (size := _number(folder / "memory.limit_in_bytes")) and size < _UNLIMITED_BYTES
    ]
    cpus = []
    for folder in _upwards(root / "cpu", paths.get("cpu", "/")):
        quota = _number(folder / "cpu.cfs_quota_us")
        period = _number(folder / "cpu.cfs_period_us")
        if quota and period and quota > 0:
            cpus.append(quota / period)
    return Limits("v1", min(memory, default=None), min(cpus, default=None))


def _words(path: Path) -> list[str]:
    with suppress(OSError):
        return path.read_text().split()
    return []


def _number(path: Path) -> int | None:
    with suppress(ValueError, IndexError):
        return int(_words(path)[0])
    return None


def _smallest(values: list[int | None]) -> int | None:
    return min((v for v in values if v is not None), default=None)
