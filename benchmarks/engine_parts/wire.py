"""The engine's end of the pipe: one JSON line in, one out. Standard library only.

It runs in whatever interpreter an engine needs. Standard output belongs to the protocol; what an
engine prints there goes to standard error.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1


class UnavailableError(Exception):
    """This engine cannot do that here; the text says why, in one line."""


def serve(open_engine: Callable[[dict[str, Any]], Any]) -> int:
    """Open an engine with the options of argv[1], then do its jobs until the pipe ends.

    `open_engine` gives an object with `facts` (a dictionary) and a method for each job. Ends with
    the parent, however that ends, also while it is stopped.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(message: Mapping[str, Any]) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    began = time.monotonic()
    try:
        engine = open_engine(json.loads(sys.argv[1]))
    except BaseException as error:
        tell(_failure(error))
        return 1
    tell({"ok": {**engine.facts, "load_s": time.monotonic() - began, **memory()}})
    for line in sys.stdin:
        tell(_do(engine, json.loads(line)))
    return 0


def _do(engine: Any, job: dict[str, Any]) -> dict[str, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        told = getattr(engine, job.pop("job"))(**job)
    except Exception as error:
        return _failure(error)
    used = {"job_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    return {"ok": {**used, **(told or {})}}


def _failure(error: BaseException) -> dict[str, Any]:
    if not isinstance(error, UnavailableError):
        traceback.print_exc()
    text = str(error).strip().splitlines()
    known = isinstance(error, UnavailableError)
    return {"error": (text or [""])[0] if known else f"{type(error).__name__}: {' '.join(text)}"}


def memory() -> dict[str, float]:
    """Resident memory of this process now, and its peak so far, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "rss_mib": pages * resource.getpagesize() / 2**20,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
