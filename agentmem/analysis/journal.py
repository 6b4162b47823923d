"""Read a run folder's two files: `manifest.json` and the append-only `journal.jsonl`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agentmem.errors import DataError
from agentmem.records import RUN_FORMAT, Row
from agentmem.telemetry.journal import read_rows

READABLE_FORMATS = tuple(v for v in (RUN_FORMAT - 1, RUN_FORMAT) if v > 0)
"""A reader takes its own format and the previous one."""


def read_manifest(folder: Path) -> dict[str, Any]:
    """The run's manifest. DataError when missing, not JSON, or of a format not readable here."""
    path = folder / "manifest.json"
    if not path.is_file():
        raise DataError(f"{folder} is not a run folder: it has no manifest.json")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # covers bad UTF-8 as well
        raise DataError(f"{path} is not valid JSON ({error})") from error
    if not isinstance(manifest, dict):
        raise DataError(f"{path} does not hold a JSON object")
    found = manifest.get("format")
    if found not in READABLE_FORMATS:
        readable = ", ".join(map(str, READABLE_FORMATS))
        raise DataError(f"{path} has run format {found!r}; this version reads {readable}")
    for key in ("status", "profile", "systems", "engine", "workload"):
        if key not in manifest:
            raise DataError(f"{path} is not the manifest of a run: it has no {key!r}")
    return manifest


def read_journal(folder: Path) -> list[Row]:
    """All rows in file order, a torn last line left out. DataError for any other bad line."""
    path = folder / "journal.jsonl"
    if not path.is_file():
        raise DataError(f"{folder} has no journal.jsonl: nothing was recorded")
    return read_rows(path)
