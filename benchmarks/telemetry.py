"""What measuring costs: the sampler's share of a core, readings, journal rows, syncs and spans.

Run from the root of a checkout: `python benchmarks/telemetry.py [--seconds 10] [--threads 16]`.
Costs are CPU time of the measuring thread (the sampler, rows) or wall time (syncs); a busy machine
lengthens the second, not the first.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agentmem import records
from agentmem.meters import contention, process
from agentmem.meters.clock import RunClock
from agentmem.meters.sampler import Sampler
from agentmem.meters.tree import scan
from agentmem.telemetry.journal import Journal, encode, read_rows
from agentmem.telemetry.spans import spans
from agentmem.telemetry.tables import write_tables

_CHILD = """
import subprocess, sys, threading
hold = bytearray(b"x" * {mib} * 1024 * 1024)
for _ in range({threads} - 1):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
"""


def start(threads: int, mib: int) -> subprocess.Popen[str]:
    """An idle child with so many threads and so much memory."""
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD.format(threads=threads, mib=mib)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    child.stdout.readline()
    return child


def cpu_us(work: Callable[[], Any], times: int) -> float:
    """CPU microseconds of this thread per call."""
    before = time.thread_time()
    for _ in range(times):
        work()
    return (time.thread_time() - before) / times * 1e6


def sampler_share(pids: list[int], journal: Journal, hz: float, seconds: float) -> float:
    """Share of one core that the sampler's thread used."""
    sampler = Sampler(RunClock(), journal.write, hz=hz)
    sampler.watch("gateway", os.getpid(), tree=False)
    for pid in pids:
        sampler.watch(f"worker:{pid}", pid)
    began = time.monotonic()
    sampler.start()
    time.sleep(seconds)
    sampler.stop()
    return sampler.cost_s / (time.monotonic() - began)


def a_call(number: int) -> records.Call:
    """A finished call with an engine's usage object."""
    values: dict[str, Any] = {f.name: None for f in dataclasses.fields(records.Call)}
    values.update(
        call_id=f"c{number}", logical_id="l", attempt=0, scope="s", system="x", history="h",
        unit="u1", phase="construction", bucket="measured", kind="extract", endpoint="chat",
        model="m", stream=False, start_s=number / 10, latency_s=0.1, outcome="ok", status=200,
        input_tokens=900, output_tokens=40, request_bytes=4000, response_bytes=900,
        request_hash="0" * 64, epoch=0,
        engine={"version": 1, "request_id": "r", "queue_s": 0.001, "prefill_s": 0.2},
    )  # fmt: skip
    return records.Call(**values)


def journal_costs(folder: Path) -> list[tuple[str, str]]:
    """Rows and syncs written to a real disk, then read back, tabled and turned into spans."""
    calls = [a_call(n) for n in range(5000)]
    path = folder / "calls.jsonl"
    journal = Journal(path)
    waiting = iter(calls)
    write_us = cpu_us(lambda: journal.write(next(waiting)), len(calls))
    began = time.monotonic()
    for _ in range(20):
        journal.write(calls[0])
        journal.sync()
    sync_ms = (time.monotonic() - began) / 20 * 1e3
    journal.close()
    rows = read_rows(path)
    read_us = cpu_us(lambda: read_rows(path), 1) / len(rows)
    table_us = cpu_us(lambda: write_tables(path, folder / "tables"), 1) / len(rows)
    span_us = cpu_us(lambda: list(spans("run", rows)), 1) / len(rows)
    size = (folder / "tables" / "calls.parquet").stat().st_size
    return [
        ("journal, a Call row", f"{write_us:.0f} us, {len(encode(calls[0]))} bytes"),
        ("journal, row + sync (wall)", f"{sync_ms:.2f} ms"),
        ("reading a row back", f"{read_us:.0f} us"),
        ("a row into Parquet, read included", f"{table_us:.0f} us, {size / len(rows):.0f} bytes"),
        ("a row into a span", f"{span_us:.0f} us"),
    ]


def meter_costs(pids: list[int], folder: Path, seconds: float) -> list[tuple[str, str]]:
    """The sampler at two rates, and one reading of each kind."""
    with Journal(folder / "samples.jsonl") as journal:
        shares = {hz: sampler_share(pids, journal, hz, seconds) for hz in (10.0, 20.0)}
    sampler = Sampler(RunClock(), lambda _: None)
    sampler.watch("worker", pids[0])
    costs = [
        (f"sampler at {hz:.0f} Hz, {len(pids)} trees and this process", f"{share:.3%} of a core")
        for hz, share in shares.items()
    ]
    costs += [
        (
            "one reading at a window's edge",
            f"{cpu_us(lambda: sampler.reading('worker'), 500):.0f} us",
        ),
        (f"one scan, {len(scan())} processes", f"{cpu_us(scan, 20):.0f} us"),
        ("PSS of a worker", f"{cpu_us(lambda: process.pss(pids[0]), 20):.0f} us"),
        ("pressure and steal", f"{cpu_us(contention.read, 200):.0f} us"),
    ]
    sampler.stop()
    return costs


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each sampler runs")
    parser.add_argument("--threads", type=int, default=16, help="threads of each watched child")
    parser.add_argument("--mib", type=int, default=300, help="memory of each watched child")
    options = parser.parse_args()
    children = [start(options.threads, options.mib) for _ in range(2)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            pids = [child.pid for child in children]
            rows = meter_costs(pids, Path(folder), options.seconds) + journal_costs(Path(folder))
    finally:
        for child in children:
            child.communicate("\n")
    for name, cost in rows:
        print(f"{name:55} {cost}")


if __name__ == "__main__":
    main()
