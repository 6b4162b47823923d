"""Reads a recording: which reply lies where, found in one pass; bodies stay in the file."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentmem.errors import DataError
from agentmem.gateway.record_format import Entry, Key, parse, parse_header

Span = tuple[int, int]
"""Offset and length of a line."""


@dataclass(slots=True)
class Index:
    """Where the replies of one recording lie. Of two lines with one key the later one counts:
    a unit done again after a kill supersedes its first try.
    """

    path: Path
    fd: int
    header: dict[str, Any] = field(default_factory=dict)
    exact: dict[Key, Span] = field(default_factory=dict)
    anywhere: dict[Key, Span] = field(default_factory=dict)
    """By the same request of the same scope, whatever the unit: background work of a system may
    fall into another unit when replies come at once."""
    sha256: str = ""

    def find(self, key: Key) -> Entry | None:
        """The reply recorded for a request; None when there is none."""
        span = self.exact.get(key) or self.anywhere.get(key.anywhere)
        if span is None:
            return None
        return parse(json.loads(os.pread(self.fd, span[1], span[0])))

    def close(self) -> None:
        os.close(self.fd)


def read_index(path: Path) -> Index:
    """Read and check a whole recording; a torn last line is left out.

    Raises DataError for a missing or foreign file, another version, and a damaged line.
    """
    try:
        index = Index(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        raise DataError(f"{path}: cannot read the recording: {error.strerror}") from None
    try:
        _fill(index)
    except BaseException as error:
        index.close()
        if isinstance(error, OSError):  # a folder can be opened, and not read
            why = error.strerror
            raise DataError(f"{path}: cannot read the recording: {why}") from None
        raise
    return index


def _fill(index: Index) -> None:
    digest, at = hashlib.sha256(), 0
    with os.fdopen(os.dup(index.fd), "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                break
            digest.update(line)
            if number == 1:
                index.header = parse_header(line, index.path)
            else:
                key = _checked(line, index.path, number)
                index.exact[key] = index.anywhere[key.anywhere] = (at, len(line))
            at += len(line)
    if not index.header:
        raise DataError(f"{index.path}: not a recording of agentmem")
    index.sha256 = digest.hexdigest()


def _checked(line: bytes, path: Path, number: int) -> Key:
    try:
        return parse(json.loads(line)).key
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: line {number} is damaged: {error}") from None
