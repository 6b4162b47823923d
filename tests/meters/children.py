"""Real child processes that do one thing until they are told to stop."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

BUSY = "while True: pass"
SLEEP = "sys.stdin.readline()"
HOG = "x = bytearray(b'x' * 80_000_000); print('ready', flush=True); sys.stdin.readline(); len(x)"
WRITER = (
    "f = open(sys.argv[1], 'wb', buffering=0); f.write(b'x' * 5_000_000); os.fsync(f.fileno());"
    "print('ready', flush=True); sys.stdin.readline()"
)


@contextmanager
def child(program: str, *arguments: str, group: bool = True) -> Iterator[subprocess.Popen[str]]:
    """Run `program` in a new interpreter; killed and waited for at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", f"import os, subprocess, sys, time\n{program}", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=group,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def said_ready(process: subprocess.Popen[str]) -> None:
    """Wait for the child's first line."""
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


def until(true: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """Wait for something to become true; generous, since the machine may be busy."""
    stop = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < stop, "did not happen in time"
        time.sleep(0.02)
