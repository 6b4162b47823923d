"""Pinned requirements: every package with `==` and hashes, torch apart."""

from __future__ import annotations

import hashlib
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from agentmem.errors import MemorySystemError

_PIN = re.compile(r"^(?P<name>[A-Za-z0-9][\w.-]*)(\[[\w,\s.-]*\])?\s*==\s*(?P<version>[^\s;]+)")


@dataclass(frozen=True, slots=True)
class Lock:
    """What an environment holds. `hash` covers the pins, the Python version and the platform."""

    hash: str
    torch: str | None
    """Its requirement, installed first and without hashes."""
    hashed: tuple[str, ...]
    """The other requirements, each one logical line with its hashes."""
    versions: dict[str, str]
    """Normalised package name -> pinned version, torch included, whose markers hold here."""


def read_lock(path: Path | None) -> Lock:
    """Read a requirements file; raises MemorySystemError with the line that is not fully pinned."""
    torch, hashed, versions = None, [], {}
    text = path.read_text(encoding="utf-8") if path is not None else ""
    for number, line in _logical_lines(text):
        where = f"{path}, line {number}"
        match = _PIN.match(line)
        if match is None:
            raise MemorySystemError(
                f"{where}: {line.split()[0]!r} must be a package pinned with =="
            )
        name = normalise(match["name"])
        if "*" in match["version"]:
            raise MemorySystemError(f"{where}: {name} must be pinned to one version")
        versions[name] = match["version"]
        if name == "torch":
            torch = line.split("--hash")[0].strip()
        elif "--hash=" not in line:
            raise MemorySystemError(f"{where}: {name} has no --hash=sha256:...")
        else:
            hashed.append(line)
    return Lock(_hash(torch, hashed), torch, tuple(hashed), versions)


def normalise(name: str) -> str:
    """A package name as installers compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _hash(torch: str | None, hashed: list[str]) -> str:
    python = f"{sys.implementation.cache_tag} {platform.machine()} {platform.libc_ver()[0]}"
    text = "\n".join([python, torch or "", *sorted(hashed)])
    return hashlib.sha256(text.encode()).hexdigest()


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """(line number, requirement) with continuations joined, comments and blanks left out."""
    lines, pending, start = [], "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)#.*$", "", raw).strip()
        start = start if pending else number
        if line.endswith("\\"):
            pending += line[:-1].strip() + " "
            continue
        if pending + line:
            lines.append((start, (pending + line).strip()))
        pending = ""
    if pending:
        lines.append((start, pending.strip()))
    return lines
