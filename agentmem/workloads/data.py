"""Find, read and select data sets that lie on this machine; nothing is ever downloaded."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from agentmem.errors import DataError, UsageError, nearest
from agentmem.workloads.base import Conversation, WorkloadSpec

ENVIRONMENT = "AGENTMEM_DATA"
"""Variable with the folder that holds the data sets, each in a folder of its own."""


def find(spec: WorkloadSpec, file: str, where: str) -> Path:
    """Path of `file`, e.g. `locomo/locomo10.json`: from `path`, else below $AGENTMEM_DATA.

    `where` says where a user gets the file; it ends the DataError for a missing one.
    """
    tried: list[Path] = []
    if spec.path is not None:
        given = Path(spec.path).expanduser()
        tried = [given / Path(file).name, given / file] if given.is_dir() else [given]
    elif os.environ.get(ENVIRONMENT):
        tried = [Path(os.environ[ENVIRONMENT]).expanduser() / file]
    for path in tried:
        if path.is_file():
            return path
    looked = f"not found at {tried[0]}" if tried else "no place given"
    raise DataError(
        f"workload {spec.name!r} needs {Path(file).name}: {looked}; {where}, then set "
        f"workload.path to the file or {ENVIRONMENT} to the folder that holds {file}"
    )


def read_json(path: Path) -> Any:
    """The parsed file; DataError says where it is not JSON."""
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise DataError(f"{path} is not JSON: line {error.lineno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; deep nesting
        raise DataError(f"{path} cannot be read as JSON: {error}") from error


def read_text(path: Path) -> str:
    """The file's text; DataError when it cannot be read or is not UTF-8. A leading mark is cut."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start})") from error


def sha256(path: Path) -> str:
    """Hash of a file's bytes, for the record."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def select(spec: WorkloadSpec, conversations: list[Conversation]) -> tuple[Conversation, ...]:
    """Those the spec asks for by `samples` and `histories`; UsageError for an unknown sample."""
    known = [conversation.history for conversation in conversations]
    for sample in spec.samples:
        if sample not in known:
            raise UsageError(f"workload.samples has no {sample!r}: {nearest(sample, known)}")
    chosen = [c for c in conversations if not spec.samples or c.history in spec.samples]
    return tuple(chosen[: spec.histories])


def wanted_categories(spec: WorkloadSpec, known: tuple[str, ...]) -> frozenset[str]:
    """The categories asked for, all when none are; UsageError for an unknown one."""
    for category in spec.categories:
        if category not in known:
            raise UsageError(
                f"workload.categories has no {category!r}: {nearest(category, list(known))}"
            )
    return frozenset(spec.categories or known)
