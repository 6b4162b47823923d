"""The benchmark's end of the pipe: an engine in a process of its own, stopped while not asked."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
START_S, JOB_S = 600.0, 900.0
"""The longest that loading, and one job, may take."""


class EngineFailedError(Exception):
    """An engine could not be opened, failed a job, or took too long; the text says how."""


class Link:
    """One engine. Its process is stopped (SIGSTOP) except while it loads or does a job.

    A stopped process takes neither cores nor bandwidth, whatever its threads would do.
    """

    def __init__(
        self,
        module: str,
        options: Mapping[str, Any],
        *,
        log: Path,
        python: str = sys.executable,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.log = log
        self._rest = b""
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [python, "-m", module, json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        try:
            self.facts = self._answer(START_S)
        except BaseException:
            self.close()
            raise
        self._signal(signal.SIGSTOP)

    @property
    def pid(self) -> int:
        """Of the engine's process."""
        return self._process.pid

    def ask(self, job: str, *, timeout_s: float = JOB_S, **given: Any) -> dict[str, Any]:
        """Do a job; its results, with `job_s` and `cpu_s` of the engine's process.

        `foreign_cores` is how many cores others used meanwhile, on average.
        """
        assert self._process.stdin is not None
        self._signal(signal.SIGCONT)
        began, busy = time.monotonic(), busy_cpu_s()
        try:
            self._process.stdin.write(json.dumps({"job": job, **given}).encode() + b"\n")
            self._process.stdin.flush()
            told = self._answer(timeout_s)
        except BrokenPipeError:
            raise EngineFailedError(f"the engine has ended; see {self.log}") from None
        wall_s = time.monotonic() - began
        foreign_s = busy_cpu_s() - busy - told["cpu_s"]
        self._signal(signal.SIGSTOP)
        return {**told, "foreign_cores": max(0.0, foreign_s / wall_s)}

    def close(self) -> None:
        """End the process and what it has started; safe to call twice."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        if self._process.poll() is None:
            self._signal(signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        message = json.loads(self._line(time.monotonic() + timeout_s, timeout_s))
        if "error" in message:
            self._signal(signal.SIGSTOP)
            raise EngineFailedError(str(message["error"]))
        return dict(message["ok"])

    def _line(self, deadline: float, timeout_s: float) -> bytes:
        assert self._process.stdout is not None
        handle = self._process.stdout.fileno()
        while b"\n" not in self._rest:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([handle], [], [], left_s)[0]:
                self.close()
                raise EngineFailedError(f"no answer within {timeout_s:.0f} s; see {self.log}")
            piece = os.read(handle, 1 << 16)
            if not piece:
                raise EngineFailedError(self._last_words())
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _last_words(self) -> str:
        code = self._process.wait()
        lines = self.log.read_text("utf-8", "replace").strip().splitlines()[-1:]
        return f"the engine ended with {code}: {(lines or ['it said nothing'])[0][:200]}"

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)


def busy_cpu_s() -> float:
    """CPU-seconds that this machine has spent on anything since it started."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    ticks = list(map(int, fields))
    idle = ticks[3] + ticks[4]  # idle and waiting for a disk
    stolen = ticks[7] if len(ticks) > 7 else 0
    return (sum(ticks[:8]) - idle - stolen) / os.sysconf("SC_CLK_TCK")


def close_all(links: Sequence[Link]) -> None:
    """End several engines."""
    for link in links:
        link.close()
