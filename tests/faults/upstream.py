"""The fake model server in a process of its own, to be killed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Upstream:
    """A running server."""

    url: str
    process: subprocess.Popen[bytes]

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0


@contextmanager
def upstream(port: int = 0, *options: str) -> Iterator[Upstream]:
    """Start it, and end it whatever happened to it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fake.upstream", "--port", str(port), *options],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        yield Upstream(json.loads(process.stdout.readline())["url"], process)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
