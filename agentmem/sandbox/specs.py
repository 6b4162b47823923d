"""Where memory systems are found: bundled, in folders named by the user, by entry point."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agentmem.errors import MemorySystemError, UsageError, nearest
from agentmem.sandbox.specfile import SPEC_FILE, load_spec
from agentmem.sandbox.specmodel import TAXONOMY, SystemSpec, Timeouts, UpstreamPackage

__all__ = [
    "SPEC_FILE",
    "TAXONOMY",
    "Broken",
    "SystemSpec",
    "Systems",
    "Timeouts",
    "UpstreamPackage",
    "bundled_folder",
    "discover",
    "find",
    "load_spec",
    "survey",
]

ENTRY_POINTS = "agentmem.systems"
FOLDERS_VARIABLE = "AGENTMEM_SYSTEMS"


def bundled_folder() -> Path:
    """`agentmem/_bundled/memsystems` of an installed wheel, else the checkout's `memsystems`."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "_bundled" / "memsystems"
    return installed if installed.is_dir() else package.parent / "memsystems"


@dataclass(frozen=True, slots=True)
class Broken:
    """A place that should hold a memory system and does not."""

    names: tuple[str, ...]
    """What a user might call it: the name in its file, its folder's, its entry point's."""
    reason: str
    """One line that names the place."""


@dataclass(frozen=True, slots=True)
class Systems:
    """What was found: systems by name, and what could not be used."""

    specs: dict[str, SystemSpec]
    broken: tuple[Broken, ...]

    def chosen(self, names: Iterable[str]) -> list[SystemSpec]:
        """Specs of `names`; MemorySystemError for a broken one, UsageError for an unknown one."""
        return [self._one(name) for name in names]

    def _one(self, name: str) -> SystemSpec:
        known = name in self.specs
        for bad in self.broken:
            # One that shares the name of a sound system may be the one that was meant.
            if name == bad.names[0] or (name in bad.names and not known):
                raise MemorySystemError(f"memory system {name!r} cannot be used: {bad.reason}")
        if not known:
            hint = nearest(name, list(self.specs))
            raise UsageError(f"no memory system named {name!r}; {hint}")
        return self.specs[name]


def survey() -> Systems:
    """All systems, and whatever is faulty beside them; raises nothing for the latter.

    Two of one name are both out: which of them was meant cannot be told.
    """
    places = list(dict.fromkeys(_places()))
    broken = [place for place in places if isinstance(place, Broken)]
    found: dict[str, list[SystemSpec]] = {}
    for folder in (place for place in places if isinstance(place, Path)):
        try:
            spec = load_spec(folder)
        except MemorySystemError as error:
            broken.append(Broken(_names(folder), str(error)))
        else:
            found.setdefault(spec.name, []).append(spec)
    for name, specs in found.items():
        if len(specs) > 1:
            folders = " and ".join(str(s.folder) for s in specs)
            broken.append(Broken((name,), f"{len(specs)} systems are named {name!r}: {folders}"))
    alone = {name: specs[0] for name, specs in found.items() if len(specs) == 1}
    return Systems(alone, tuple(broken))


def discover() -> dict[str, SystemSpec]:
    """All systems by name that can be used; `survey` also tells what cannot."""
    return survey().specs


def find(name: str) -> SystemSpec:
    """The system called `name`; see `Systems.chosen` for what is raised."""
    return survey().chosen([name])[0]


def _names(folder: Path) -> tuple[str, ...]:
    """The folder's name, and the one in its file where that can be read at all."""
    try:
        name = tomllib.loads((folder / SPEC_FILE).read_text(encoding="utf-8")).get("name")
    except (OSError, ValueError):
        name = None
    return tuple(dict.fromkeys(n for n in (name, folder.name) if isinstance(n, str)))


def _places() -> Iterator[Path | Broken]:
    yield from _children(bundled_folder())
    for entry in filter(None, os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep)):
        folder = Path(entry).expanduser()
        if not folder.is_dir():
            reason = f"{FOLDERS_VARIABLE} names {folder}, which is not a folder"
            yield Broken((folder.name,), reason)
        elif (folder / SPEC_FILE).is_file():
            yield folder.resolve()
        else:
            yield from _children(folder)
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        try:
            yield _module_folder(point)
        except MemorySystemError as error:
            yield Broken((point.name,), str(error))


def _children(folder: Path) -> list[Path]:
    return sorted(file.parent.resolve() for file in folder.glob(f"*/{SPEC_FILE}"))


def _module_folder(point: importlib.metadata.EntryPoint) -> Path:
    """Folder of the module or package an entry point names; a dotted name's parents run."""
    try:
        spec = importlib.util.find_spec(point.module)
    except (ImportError, ValueError) as error:
        raise MemorySystemError(f"entry point {point.name!r} of {ENTRY_POINTS}: {error}") from None
    if spec is None:
        raise MemorySystemError(
            f"entry point {point.name!r} of {ENTRY_POINTS} names {point.module!r}, "
            "which is not installed"
        )
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve()
    return Path(spec.origin or "").resolve().parent
