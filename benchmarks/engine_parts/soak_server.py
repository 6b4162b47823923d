"""`agentmem serve` in a process, and what can be read of it from outside."""

from __future__ import annotations

import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import aiohttp

ROOT = Path(__file__).resolve().parents[2]
START_S, STOP_S = 180.0, 60.0
_LINE = re.compile(r"^(\w[\w:]*?)(?:\{(.*)\})? (\S+)$")


class Server:
    """The server of one soak; ready when entered, told to stop at the end."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        command = [sys.executable, "-m", "agentmem", "serve", "--port", "0", *arguments]
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT
            )
        self.url, self.log, self.exit_code = "", log, -1

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        handle, said, until = self._process.stdout.fileno(), b"", time.monotonic() + START_S
        # what is fetched or loaded may be told first: the ready line is the one in JSON
        while not (found := re.search(rb"^\{.*\}\n", said, re.MULTILINE)):
            left_s = until - time.monotonic()
            piece = b""
            if left_s > 0 and select.select([handle], [], [], left_s)[0]:
                piece = os.read(handle, 1 << 16)
            if not piece:
                self._process.kill()
                self._process.wait()
                raise SystemExit(f"the server did not start; see {self.log}")
            said += piece
        self.url = str(json.loads(found[0])["url"]).removesuffix("/v1")
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self.exit_code = self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    @property
    def pid(self) -> int:
        """Of the server."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Still there."""
        return self._process.poll() is None


@dataclass(frozen=True, slots=True)
class Reading:
    """The server at one moment. `quiet`: nothing was asked of it, and nothing ran."""

    at_s: float
    phase: str
    quiet: bool
    memory_mb: float
    threads: int
    files: int
    running: float
    waiting: float
    blocks_used: float
    blocks_cached: float
    blocks_free: float
    sessions: float
    cpu_s: float


def read(pid: int, gauges: dict[str, float], at_s: float, phase: str, quiet: bool) -> Reading:
    """From the process table and the server's own gauges."""
    proc = Path(f"/proc/{pid}")
    pages = int((proc / "statm").read_text().split()[1])
    ticks = (proc / "stat").read_text().rpartition(")")[2].split()[11:13]
    return Reading(
        at_s=round(at_s, 1),
        phase=phase,
        quiet=quiet,
        memory_mb=pages * resource.getpagesize() / 1e6,
        threads=len(list((proc / "task").iterdir())),
        files=len(list((proc / "fd").iterdir())),
        running=total(gauges, "num_requests_running"),
        waiting=total(gauges, "num_requests_waiting"),
        blocks_used=total(gauges, "kv_cache_blocks", 'state="used"'),
        blocks_cached=total(gauges, "kv_cache_blocks", 'state="cached"'),
        blocks_free=total(gauges, "kv_cache_blocks", 'state="free"'),
        sessions=total(gauges, "sessions"),
        cpu_s=sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"),
    )


async def gauges(client: aiohttp.ClientSession, url: str) -> dict[str, float]:
    """Every line of /metrics by name and labels."""
    async with client.get(f"{url}/metrics") as reply:
        return parse(await reply.text())


def parse(text: str) -> dict[str, float]:
    """Prometheus text: `name{labels}` to value, names without their prefix."""
    found = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match and not line.startswith("#"):
            name = match[1].rpartition(":")[2]
            found[f"{name}{{{match[2] or ''}}}"] = float(match[3])
    return found


def total(found: dict[str, float], name: str, label: str = "") -> float:
    """Sum over the labels of a name, those with `label` only."""
    return sum(value for key, value in found.items() if key.startswith(name + "{") and label in key)
