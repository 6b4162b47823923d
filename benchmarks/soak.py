"""Repeats small runs for a stated time and looks for growth: memory, files, threads, processes.

    python benchmarks/soak.py --minutes 120
    python benchmarks/soak.py --minutes 120 --engine local --systems long_context,bm25,embedrag,mem0
    python benchmarks/soak.py --minutes 100 --share 0.2      # at most 20 % of one core

Everything happens in this process, as a notebook would do it: run, check, and every few rounds a
report. The model server (the tests' fake, or the local engine) is started once and serves all
rounds, so that its own growth shows. Stops after --minutes; ends at once on Ctrl-C, with a verdict
over the rounds so far. Writes soak.csv (a line per round) and soak.json (the verdict) to --out.
Exit code 1 when something grew.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import ctypes
import gc
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from agentmem import profile  # noqa: E402
from agentmem.analysis.checks import check_run, failed  # noqa: E402
from agentmem.analysis.load import load  # noqa: E402
from agentmem.profile import EngineSpec  # noqa: E402
from agentmem.report import build  # noqa: E402
from agentmem.runner.engine import LocalEngine  # noqa: E402
from agentmem.runner.progress import Silent  # noqa: E402
from agentmem.runner.run import RunOptions, run  # noqa: E402
from agentmem.sandbox.process import descendants  # noqa: E402

PR_SET_CHILD_SUBREAPER = 36
WARM_UP = 5
"""Rounds left out of the verdict: caches and allocators fill."""
MEMORY_SLACK_MB, MEMORY_SLACK_PART = 8.0, 0.04
"""Growth of memory below this, between the first and last third, is called none."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One round, read when it is over and everything of it should be gone."""

    round: int
    at_s: float
    wall_s: float
    cpu_s: float
    memory_mb: float
    """Of this process: the runner, gateway, analysis and reports."""
    server_mb: float
    worker_peak_mb: float
    files: int
    threads: int
    processes: int
    """Descendants, orphans included; the model server's are taken off."""
    temporary: int
    """Entries in the private temporary folder."""


@dataclass(frozen=True, slots=True)
class Growth:
    """How one series moved between its first and last third."""

    what: str
    first: float
    last: float
    per_hour: float
    """Least-squares slope."""
    grew: bool


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    # Orphans of this process's children become its own, so that none can hide.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    out = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="soak-") as private:
        tempfile.tempdir = os.environ["TMPDIR"] = private
        Path(private).chmod(0o755)  # workers have user ids of their own
        with server(args.engine, out / "server.log") as (url, models, pid):
            readings = list(rounds(args, out, url, models, pid))
    found = verdict(readings, args.engine)
    (out / "soak.json").write_text(json.dumps(summary(args, readings, found), indent=1))
    for growth in found:
        tag = "GREW" if growth.grew else "steady"
        print(f"{growth.what:14} {growth.first:9.1f} -> {growth.last:9.1f}", end="  ")
        print(f"{growth.per_hour:+9.2f} an hour  {tag}")
    bad = any(growth.grew for growth in found) or len(readings) <= WARM_UP
    print(f"{len(readings)} rounds: {'not steady' if bad else 'no growth'}; {out / 'soak.json'}")
    return int(bad)


def parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    given = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    given.add_argument("--minutes", type=float, default=120.0, help="when to stop (default 120)")
    given.add_argument("--engine", choices=["fake", "local"], default="fake")
    given.add_argument("--systems", default="long_context,bm25,embedrag", metavar="a,b")
    given.add_argument("--share", type=float, default=1.0, help="part of one core to use at most")
    given.add_argument("--report-every", type=int, default=10, metavar="N", help="rounds")
    given.add_argument("--out", type=Path, default=Path("soak"), metavar="DIR")
    return given


@contextlib.contextmanager
def server(kind: str, log: Path) -> Iterator[tuple[str, dict[str, str], int]]:
    """A model server for all rounds: URL, model names, process id."""
    if kind == "local":
        engine = LocalEngine(EngineSpec(), log)
        url = engine.url.rstrip("/")
        try:
            yield url if url.endswith("/v1") else f"{url}/v1", {}, engine.pid
        finally:
            engine.stop()
        return
    command = [sys.executable, "-m", "tests.fake.upstream", "--script", "mem0"]
    with log.open("ab") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT)
    assert process.stdout is not None
    try:
        names = {"model": "fake-chat", "embedder": "fake-embed"}
        yield json.loads(process.stdout.readline())["url"], names, process.pid
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def rounds(
    args: argparse.Namespace, out: Path, url: str, models: dict[str, str], pid: int
) -> Iterator[Reading]:
    """Run until the time is up; each reading is on disk before the next round starts."""
    data = profile_data(args.systems.split(","), url, models or served(url))
    began, number = time.monotonic(), 0
    with (out / "soak.csv").open("w", newline="", encoding="utf-8") as file:
        lines = csv.DictWriter(file, [f.name for f in fields(Reading)])
        lines.writeheader()
        while time.monotonic() - began < 60 * args.minutes:
            try:
                reading = one_round(number, began, data, out / "run", pid, args.report_every)
            except KeyboardInterrupt:
                return
            lines.writerow(asdict(reading))
            file.flush()
            yield reading
            number += 1
            left_s = began + 60 * args.minutes - time.monotonic()
            time.sleep(max(0.0, min(left_s, reading.cpu_s / args.share - reading.wall_s)))


def served(url: str) -> dict[str, str]:
    """Names of the local engine's models."""
    from agentmem.runner.engine import facts

    seen = facts(url, url, EngineSpec(), "local")
    return {"model": seen.model, "embedder": seen.embed_model}


def profile_data(systems: list[str], url: str, models: dict[str, str]) -> dict[str, Any]:
    """The bundled quickstart's workload, on a server that is already there."""
    quick = profile.load("quickstart").as_dict()
    return {
        "name": "soak",
        "systems": systems,
        "workload": {**quick["workload"], "tokenizer": "words-v1"},
        "engine": {"url": url, **models},
        "answer": quick["answer"],
        "limits": quick["limits"],
        "run": {"quiet_s": 0.05},
    }


def one_round(
    number: int, began: float, data: dict[str, Any], folder: Path, pid: int, report_every: int
) -> Reading:
    """A run, its check, now and then its report; then everything is deleted and counted."""
    start, cpu = time.monotonic(), cpu_s(pid)
    shutil.rmtree(folder, ignore_errors=True)
    result = run(profile.parse(data), RunOptions(folder), Silent())
    done = load(folder)
    broken = failed(check_run(done))
    if result.status != "complete" or broken:
        raise SystemExit(f"round {number}: {result.status}, {[c.detail for c in broken]}")
    if number % report_every == 0:
        build([folder], folder / "report")
    workers = done.samples[done.samples["role"].str.startswith("worker")]
    peak_mb = float(workers["peak_rss_bytes"].max()) / 1e6
    del done, workers
    gc.collect()
    return Reading(
        number,
        start - began,
        time.monotonic() - start,
        cpu_s(pid) - cpu,
        rss_mb(os.getpid()),
        rss_mb(pid),
        peak_mb,
        len(list(Path("/proc/self/fd").iterdir())),
        len(list(Path("/proc/self/task").iterdir())),
        len(set(descendants(os.getpid())) - {pid, *descendants(pid)}),
        len(list(Path(tempfile.gettempdir()).iterdir())),
    )


def cpu_s(server: int) -> float:
    """CPU-seconds of this process, its children that are gone, and the server."""
    own, gone = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    ticks = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[11:13]
    served = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    return own.ru_utime + own.ru_stime + gone.ru_utime + gone.ru_stime + served


def rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def verdict(readings: Sequence[Reading], engine: str) -> list[Growth]:
    """Every watched series judged; memory has some slack, countable things have none."""
    kept = readings[min(WARM_UP, len(readings) // 2) :]
    watched = ["memory_mb", "worker_peak_mb", "files", "threads", "processes", "temporary"]
    found = [judge(name, kept) for name in watched] if kept else []
    if engine == "local" and kept:  # the fake keeps every request
        # Its prefix cache fills up to a fixed size first, some 20 rounds of four systems.
        found.append(judge("server_mb", kept[len(kept) // 3 :]))
    return found


def judge(what: str, readings: Sequence[Reading]) -> Growth:
    values = [float(getattr(r, what)) for r in readings]
    third = max(1, len(values) // 3)
    first, last = statistics.median(values[:third]), statistics.median(values[-third:])
    hours = [r.at_s / 3600 for r in readings]
    slope = statistics.linear_regression(hours, values).slope if len(set(hours)) > 1 else 0.0
    if what.endswith("_mb"):
        slack = max(MEMORY_SLACK_MB, MEMORY_SLACK_PART * first)
        return Growth(what, first, last, slope, last - first > slack and slope > 0)
    return Growth(what, first, last, slope, last > first)


def summary(
    args: argparse.Namespace, readings: Sequence[Reading], found: Sequence[Growth]
) -> dict[str, Any]:
    return {
        "minutes": args.minutes,
        "engine": args.engine,
        "systems": args.systems.split(","),
        "rounds": len(readings),
        "left_out": WARM_UP,
        "series": [asdict(growth) for growth in found],
        "grew": [growth.what for growth in found if growth.grew],
    }


if __name__ == "__main__":
    sys.exit(main())
