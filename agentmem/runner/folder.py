"""The run folder: manifest, journal, stores, logs. One writer at a time, nothing ever deleted."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentmem.errors import DataError, UsageError
from agentmem.records import RUN_FORMAT


class RunFolder:
    """A locked folder for one run.

    Raises UsageError when another process writes there or the folder cannot be written, and
    DataError for a manifest that is not ours.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            for part in ("stores", "logs", "snapshots"):
                (path / part).mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as err:
            raise UsageError(
                f"cannot write to {path}: {err.strerror}; choose another --out"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise UsageError(
                f"{path} is in use by another run; wait or choose another --out"
            ) from None

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    def store(self, system: str, history: str) -> Path:
        return self._made("stores", system, history)

    def logs(self, system: str, history: str) -> Path:
        return self._made("logs", system, history)

    def snapshots(self, system: str, history: str) -> Path:
        return self._made("snapshots", system, history)

    def _made(self, *parts: str) -> Path:
        path = self.path.joinpath(*parts)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def read_manifest(self) -> dict[str, Any] | None:
        """The manifest, or None in a new folder."""
        file = self.path / "manifest.json"
        if not file.exists():
            return None
        try:
            manifest = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as err:
            raise DataError(f"{file}: not a readable manifest: {err}") from None
        if not isinstance(manifest, dict) or manifest.get("format") not in (RUN_FORMAT,):
            found = manifest.get("format") if isinstance(manifest, dict) else None
            raise DataError(f"{file}: run format {found!r}; this version reads {RUN_FORMAT}")
        return manifest

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Replace the manifest atomically."""
        write_atomic(
            self.path / "manifest.json", json.dumps(manifest, indent=1, ensure_ascii=False)
        )

    def close(self) -> None:
        os.close(self._lock)


def write_atomic(path: Path, text: str) -> None:
    """Write `text` so that a reader sees the old file or the new one, never half of one."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as err:
        part.unlink(missing_ok=True)
        raise DataError(
            f"cannot write {path}: {err.strerror}; mend that and run the same command again"
        ) from None
