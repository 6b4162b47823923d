"""Where memory systems are found: bundled, in folders named by the user, by entry point."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

from agentmem.errors import MemorySystemError, nearest
from agentmem.sandbox.specfile import SPEC_FILE, load_spec
from agentmem.sandbox.specmodel import TAXONOMY, SystemSpec, Timeouts, UpstreamPackage

__all__ = [
    "SPEC_FILE",
    "TAXONOMY",
    "SystemSpec",
    "Timeouts",
    "UpstreamPackage",
    "bundled_folder",
    "discover",
    "find",
    "load_spec",
]

ENTRY_POINTS = "agentmem.systems"
FOLDERS_VARIABLE = "AGENTMEM_SYSTEMS"


def bundled_folder() -> Path:
    """`agentmem/_bundled/memsystems` of an installed wheel, else the checkout's `memsystems`."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "_bundled" / "memsystems"
    return installed if installed.is_dir() else package.parent / "memsystems"


def discover() -> dict[str, SystemSpec]:
    """All systems by name; raises MemorySystemError when one is faulty or two share a name."""
    found: dict[str, SystemSpec] = {}
    for folder in _folders():
        spec = load_spec(folder)
        known = found.get(spec.name)
        if known is not None and known.folder != spec.folder:
            raise MemorySystemError(
                f"two systems are named {spec.name!r}: {known.folder} and {spec.folder}"
            )
        found[spec.name] = spec
    return found


def find(name: str) -> SystemSpec:
    """The system called `name`; the error names the nearest known one."""
    systems = discover()
    if name not in systems:
        raise MemorySystemError(
            f"no memory system is named {name!r}, {nearest(name, list(systems))}"
        )
    return systems[name]


def _folders() -> Iterator[Path]:
    yield from _children(bundled_folder())
    for entry in filter(None, os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep)):
        folder = Path(entry).expanduser()
        if not folder.is_dir():
            raise MemorySystemError(f"{FOLDERS_VARIABLE} names {folder}, which is not a folder")
        if (folder / SPEC_FILE).is_file():
            yield folder.resolve()
        else:
            yield from _children(folder)
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        yield _module_folder(point)


def _children(folder: Path) -> list[Path]:
    return sorted(file.parent.resolve() for file in folder.glob(f"*/{SPEC_FILE}"))


def _module_folder(point: importlib.metadata.EntryPoint) -> Path:
    """Folder of the module or package an entry point names; a dotted name's parents run."""
    try:
        spec = importlib.util.find_spec(point.module)
    except ImportError as error:
        raise MemorySystemError(f"entry point {point.name!r} of {ENTRY_POINTS}: {error}") from None
    if spec is None:
        raise MemorySystemError(
            f"entry point {point.name!r} of {ENTRY_POINTS} names {point.module!r}, "
            "which is not installed"
        )
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve()
    return Path(spec.origin or "").resolve().parent
