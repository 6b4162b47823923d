"""Where a scope left off: what stands, which snapshot to restore, which epoch comes next (R8)."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agentmem.records import Failure, Mark, Query, Row, Unit

CLIENT_TIMEOUT = "client_timeout"
"""Kind of the failure after which a scope's model calls may take longer."""


@dataclass(frozen=True, slots=True)
class Progressed:
    """A scope's finished work, by the journal. Empty for a scope never opened."""

    epoch: int = 0
    done: bool = False
    constructed: bool = False
    units: tuple[str, ...] = ()
    """Units that the snapshot holds, in order."""
    queries: tuple[str, ...] = ()
    snapshot: str | None = None
    """Name of the snapshot to restore: the last unit it holds; None: start with an empty store."""
    version: int | None = None
    """Store version after the last of `units`, where the system numbers them."""
    patient: bool = False
    """Model calls timed out before, so the time-out is longer now."""


def progressed(rows: Iterable[Row], scope: str) -> Progressed:
    """Read one scope's rows; units after the last snapshot do not count as finished."""
    mine = [r for r in rows if getattr(r, "scope", None) == scope]
    marks = [r for r in mine if isinstance(r, Mark)]
    if not marks:
        return Progressed()
    epoch = max(m.epoch for m in marks)
    what = {m.what for m in marks}
    snapshot = next((m.unit for m in reversed(marks) if m.what == "snapshot"), None)
    units = list(dict.fromkeys(r.unit for r in mine if isinstance(r, Unit) and r.status != "lost"))
    held = units[: units.index(snapshot) + 1] if snapshot in units else []
    versions = {r.unit: r.store_version for r in mine if isinstance(r, Unit)}
    queries = tuple(dict.fromkeys(r.question_id for r in mine if isinstance(r, Query)))
    return Progressed(
        epoch=epoch + 1,
        done="done" in what,
        constructed="constructed" in what,
        units=tuple(held),
        queries=queries,
        snapshot=snapshot,
        version=versions[held[-1]] if held else None,
        patient=any(isinstance(r, Failure) and r.kind == CLIENT_TIMEOUT for r in mine),
    )


def restore(store: Path, snapshots: Path, name: str | None) -> None:
    """Put the store back to a snapshot, or to empty; what was there is moved aside, not deleted."""
    if store.exists() and any(store.iterdir()):
        aside = store.with_name(f"{store.name}.superseded")
        number = 1
        while aside.exists():
            number += 1
            aside = store.with_name(f"{store.name}.superseded{number}")
        store.rename(aside)
    if name is not None:
        shutil.copytree(snapshots / safe(name), store)
    else:
        store.mkdir(parents=True, exist_ok=True)


def safe(name: str) -> str:
    """A unit id as a file name."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)[:100] or "_"
