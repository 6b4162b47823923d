"""Disk footprint of a store: how long its files are, and how much disk they take."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_BLOCK_BYTES = 512
"""Unit of `st_blocks`, whatever the file system's own block is."""


@dataclass(frozen=True, slots=True)
class FolderSize:
    """Size of everything under a folder."""

    apparent_bytes: int
    """Sum of file lengths: comparable across machines; a sparse file counts in full."""
    allocated_bytes: int
    """Disk taken, folders included; depends on the file system's blocks and compression."""
    files: int


def measure(path: Path) -> FolderSize | None:
    """Walk a folder (or look at one file); None when it does not exist.

    Links are not followed, a file with several names counts once, and one that vanishes during the
    walk (a database's journal) is left out.
    """
    try:
        top = os.lstat(path)
    except OSError:
        return None
    apparent, allocated, files = 0, 0, 0
    seen: set[tuple[int, int]] = set()
    for info in [top, *_below(path)]:
        if (info.st_dev, info.st_ino) in seen:
            continue
        seen.add((info.st_dev, info.st_ino))
        allocated += info.st_blocks * _BLOCK_BYTES
        if not stat.S_ISDIR(info.st_mode):
            apparent += info.st_size
            files += 1
    return FolderSize(apparent, allocated, files)


def _below(path: Path) -> list[os.stat_result]:
    found: list[os.stat_result] = []
    open_folders = [os.fspath(path)]
    while open_folders:
        with suppress(OSError), os.scandir(open_folders.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    found.append(os.lstat(entry.path))
                    if entry.is_dir(follow_symlinks=False):
                        open_folders.append(entry.path)
    return found
