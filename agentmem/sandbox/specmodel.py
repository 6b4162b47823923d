"""What a memory system says about itself, as a frozen record."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from agentmem.records import Fingerprint

TAXONOMY = (
    "agentic",
    "construction_llm",
    "construction_embeds",
    "structured_records",
    "store",
    "retrieval_llm",
    "retrieval_flow",
    "mutability",
)
"""Columns of the taxonomy table (T1), in print order; `paradigm` stands before them."""


@dataclass(frozen=True, slots=True)
class UpstreamPackage:
    """The foreign package under test, as printed in a report."""

    package: str
    version: str | None = None
    licence: str | None = None
    imports: tuple[str, ...] = ()
    """Top-level modules the adapter may import besides the standard library."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Longest wait in seconds per verb before the worker counts as hung and is killed."""

    start: float = 300.0
    """From spawning to the adapter being imported."""
    open: float = 300.0
    construct: float = 3600.0
    flush: float = 3600.0
    retrieve: float = 900.0
    answer: float = 3600.0
    forget: float = 600.0
    maintain: float = 3600.0
    footprint: float = 120.0
    snapshot: float = 600.0
    close: float = 120.0


@dataclass(frozen=True, slots=True)
class SystemSpec:
    """One memory system: its taxonomy row, what it needs, and where its files lie."""

    name: str
    title: str
    paradigm: str
    environment: Literal["host", "own"]
    folder: Path
    adapter: Path
    requirements: Path | None
    """Pinned packages; None for a host system without any."""
    taxonomy: Mapping[str, str]
    upstream: UpstreamPackage | None = None
    endpoints: tuple[str, ...] = ()
    """Which of "chat" and "embed" the system calls."""
    native_answer: bool = False
    passthrough: bool = False
    """Retrieval hands over everything; the runner cuts to the window."""
    overlap: bool = False
    """Construction and questions may run at the same time."""
    stores_records: bool = True
    fidelity: Literal["shipped", "fixed"] = "shipped"
    env: Mapping[str, str] = field(default_factory=dict)
    """Extra variables of the worker; {store}, {home} and {tmp} are filled in."""
    timeouts: Timeouts = field(default_factory=Timeouts)
    stores: Mapping[str, str] = field(default_factory=dict)
    """Parts of the store named by `footprint`, each with what it holds."""
    fingerprints: tuple[Fingerprint, ...] = ()

    @property
    def code_hash(self) -> str:
        """sha256 over the files of the system's folder (and its adapter's, for a variant)."""
        digest = hashlib.sha256()
        folders = sorted({self.folder, self.adapter.parent})
        for path in (p for f in folders for p in sorted(f.rglob("*")) if p.is_file()):
            if "__pycache__" not in path.parts:
                digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        return digest.hexdigest()
