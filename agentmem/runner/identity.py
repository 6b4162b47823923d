"""Run identity: a hash of everything that decides a run's results (R8)."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def digest(value: Any) -> str:
    """sha256 of a JSON value in canonical form."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def tree_digest(
    folders: Iterable[Path], suffixes: tuple[str, ...] | None = (".py", ".toml", ".txt")
) -> str:
    """sha256 over the names and contents of files below `folders`: sources, or all for None."""
    hasher = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            wanted = suffixes is None or path.suffix in suffixes
            if wanted and "_bundled" not in path.parts and path.is_file():
                hasher.update(str(path.relative_to(folder)).encode())
                hasher.update(hashlib.sha256(path.read_bytes()).digest())
    return hasher.hexdigest()


@functools.cache
def _own_code() -> str:
    """What this process runs is what it imported: hashed once."""
    return tree_digest([Path(__file__).resolve().parent.parent])


def run_identity(
    profile: Mapping[str, Any],
    data_hash: str,
    engine: Mapping[str, Any],
    locks: Mapping[str, str],
    system_folders: Iterable[Path],
) -> str:
    """Hash of profile, code, data, models, system locks and kernel backend, 64 hex digits.

    The engine's address is left out: a local engine gets another port every time.
    """
    return digest(
        {
            "profile": profile,
            "code": [_own_code(), tree_digest(system_folders)],
            "data": data_hash,
            "engine": {k: v for k, v in engine.items() if k not in ("url", "pid")},
            "locks": dict(locks),
        }
    )
