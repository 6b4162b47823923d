"""Load a run folder: manifest and journal into frames that can be read, summed and plotted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from agentmem.analysis.attribute import phase_frame
from agentmem.analysis.frames import calls_frame, frame
from agentmem.analysis.journal import read_journal, read_manifest
from agentmem.analysis.scores import score_frame
from agentmem.analysis.settle import settle
from agentmem.errors import UsageError
from agentmem.records import Failure, Footprint, Query, Row, Sample, Unit, Window


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One run, read. Frames hold one row per recorded fact; `journal` holds the rows as written."""

    folder: Path
    manifest: Mapping[str, Any]
    journal: tuple[Row, ...]
    """Rows in file order, untouched: what the accounting checks are made against."""
    calls: pd.DataFrame
    windows: pd.DataFrame
    units: pd.DataFrame
    queries: pd.DataFrame
    samples: pd.DataFrame
    footprints: pd.DataFrame
    failures: pd.DataFrame
    phases: pd.DataFrame
    """Calls, tokens, seconds and joules per system, phase and bucket."""
    scores: pd.DataFrame
    """One row per question and system: what was right, what was found."""

    @property
    def name(self) -> str:
        return str(self.manifest.get("run_id") or self.folder.name)

    @property
    def systems(self) -> list[str]:
        """Systems in the order they ran, reference rows last."""
        return order_of(self.manifest, self.phases, self.scores)


REFERENCES = ("no_memory", "oracle_evidence")
"""Rows that the harness runs itself: the reader alone, and the reader given the evidence."""


def order_of(manifest: Mapping[str, Any], *frames: pd.DataFrame) -> list[str]:
    seen = {str(s) for table in frames for s in table["system"]}
    named = [s for s in (manifest.get("order") or manifest.get("systems") or ()) if s]
    rest = sorted(seen - set(named) - set(REFERENCES))
    own = [s for s in named if s not in REFERENCES]
    return own + rest + [r for r in REFERENCES if r in seen or r in named]


def distinct(run_dirs: Iterable[str | Path]) -> None:
    """UsageError when two of these name one folder: its rows would count twice."""
    seen: dict[Path, str | Path] = {}
    for given in run_dirs:
        place = Path(given).resolve()
        if place in seen:
            also = "" if str(seen[place]) == str(given) else f" and {given}"
            raise UsageError(f"the same run is given twice: {seen[place]}{also}")
        seen[place] = given


def load(run_dir: str | Path) -> Run:
    """Read a run folder. DataError, in one line, when it is missing, corrupt or too new."""
    folder = Path(run_dir)
    manifest = read_manifest(folder)
    journal = read_journal(folder)
    rows = settle(journal)
    calls = calls_frame(rows.calls, dict(rows.booked))
    windows = frame(rows.windows, Window)
    return Run(
        folder=folder,
        manifest=manifest,
        journal=tuple(journal),
        calls=calls,
        windows=windows,
        units=frame(rows.units, Unit),
        queries=frame(rows.queries, Query),
        samples=frame(rows.samples, Sample),
        footprints=frame(rows.footprints, Footprint),
        failures=frame(rows.failures, Failure),
        phases=phase_frame(calls, windows, manifest),
        scores=score_frame(rows.queries),
    )
