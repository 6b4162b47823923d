"""Our engine beside llama.cpp, transformers and vLLM: same weights, same token ids, one run.

    python benchmarks/engine.py --json engine.json
    python benchmarks/engine.py --json quick.json --quick --models smollm2-135m --rounds 2
    python benchmarks/engine.py --setup-peers llama.cpp,vllm

Every engine stays loaded in a process of its own, stopped while another is measured; each round
gives every engine the same work once, beside a probe of bandwidth and matrix products at that
moment. A row's ratio is the median over the rounds, and higher is better in every row: rates are
ours / best other, times and memory best other / ours. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agentmem.errors import DataError
from agentmem.modelfiles.fetch import resolve
from benchmarks.engine_parts import machine, special, speed
from benchmarks.engine_parts.bench import PACKAGE, Bench, Options
from benchmarks.engine_parts.cases import GROUPS, MODELS, OWN_MODES, cases
from benchmarks.engine_parts.convert import converted
from benchmarks.engine_parts.link import Link
from benchmarks.engine_parts.peers import DEFAULT, PEERS, environment
from benchmarks.engine_parts.rows import MISSING, Row, perplexities
from benchmarks.engine_parts.screen import Screen, machine_line, tables
from benchmarks.engine_parts.setup_peers import setup

FORMAT = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write. Exit code 1: nothing was measured, or drafts changed tokens."""
    given = parser()
    args = given.parse_args(argv)
    if args.setup_peers:
        return prepare(args.setup_peers)
    try:
        options = options_of(args)
    except (ValueError, DataError, OSError) as error:
        given.error(str(error))
    rows: list[Row] = []
    result = Result(args.json, options, rows)
    with Screen() as screen:
        screen.say(machine_line(result.machine))
        with Link(
            f"{PACKAGE}.probe",
            {"threads": options.threads},
            log=options.logs / "probe.log",
            environment=environment(options.threads),
        ) as probe:
            bench = Bench(options, screen, probe, resolve, converted, result.add)
            result.engines = bench.engines
            try:
                run(bench)
            except KeyboardInterrupt:
                result.write("interrupted")
                screen.say(f"interrupted; {len(rows)} rows so far")
    result.write("complete" if result.status == "running" else result.status)
    for table in tables(rows):
        screen.console.print(table)
    screen.say(f"{args.json or 'nothing written'}; logs in {options.logs}")
    wrong = any(row.status == "failed" for row in rows)
    return int(wrong or all(row.status == MISSING for row in rows))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    form = argparse.RawDescriptionHelpFormatter
    given = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    given.add_argument("--json", type=Path, metavar="FILE", help="write rows and all figures here")
    given.add_argument(
        "--models", default=",".join(MODELS), metavar="a,b", help="names, GGUF files, folders"
    )
    given.add_argument(
        "--peers", default=",".join(DEFAULT), metavar="a,b", help=f"of {', '.join(PEERS)}; or none"
    )
    given.add_argument("--modes", default=",".join(OWN_MODES), metavar="a,b", help="of our engine")
    given.add_argument("--work", default=",".join(GROUPS), metavar="a,b", help=", ".join(GROUPS))
    given.add_argument("--rounds", type=int, default=5, help="interleaved rounds (5)")
    given.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    given.add_argument(
        "--perplexity", type=Path, action="append", default=[], metavar="FILE",
        help="what `agentmem engine perplexity --json` wrote; may be repeated",
    )  # fmt: skip
    given.add_argument("--quick", action="store_true", help="tiny sizes: does everything work?")
    given.add_argument("--logs", type=Path, metavar="DIR", help="where engines' output goes")
    given.add_argument("--setup-peers", metavar="a,b", help="install llama.cpp, vllm; then end")
    return given


def options_of(args: argparse.Namespace) -> Options:
    """Checked options; ValueError, DataError or OSError for what cannot be."""
    peers = () if args.peers == "none" else split(args.peers, "peer", list(PEERS))
    groups = split(args.work, "work", list(GROUPS))
    modes = split(args.modes, "mode", list(OWN_MODES))
    if args.rounds < 1 or args.threads < 1:
        raise ValueError("--rounds and --threads must be 1 at least")
    found = {}
    for file in args.perplexity:
        found |= perplexities(json.loads(file.read_text(encoding="utf-8")))
    models = tuple(name for name in args.models.split(",") if name)
    for model in models:
        resolve(model)
    logs = args.logs or Path(tempfile.mkdtemp(prefix="engine-bench-"))
    logs.mkdir(parents=True, exist_ok=True)
    return Options(
        models=models,
        peers=peers,
        groups=groups,
        rounds=args.rounds,
        threads=args.threads,
        quick=args.quick,
        logs=logs.resolve(),
        perplexities=found,
        modes=modes,
    )


def split(text: str, what: str, known: Sequence[str]) -> tuple[str, ...]:
    """A comma-separated list; ValueError for a name that is not known."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in known:
            raise ValueError(f"no {what} is called {name!r}; known: {', '.join(known)}")
    return names


def run(bench: Bench) -> None:
    """Every model, every kind of work."""
    options = bench.options
    wanted = cases(options.groups, options.quick)
    each = speed.jobs(wanted, options.rounds, len(options.peers))
    each += special.jobs(options.groups, options.rounds)
    bench.screen.expect(each * len(options.models))
    for model in options.models:
        speed.run(bench, model, wanted)
        special.run(bench, model)


class Result:
    """What is written: complete after every row, so that an interrupted run loses nothing."""

    def __init__(self, path: Path | None, options: Options, rows: list[Row]) -> None:
        self.path, self.rows, self.status = path, rows, "running"
        self.machine = machine.facts()
        self.engines: dict[str, dict[str, Any]] = {}
        self._began = time.monotonic()
        self._options = {
            name: getattr(options, name)
            for name in ("models", "peers", "groups", "rounds", "threads", "quick", "modes")
        }

    def add(self, row: Row) -> None:
        """Keep a row."""
        self.rows.append(row)
        self.write(self.status)

    def write(self, status: str) -> None:
        """Write everything known so far."""
        self.status = status
        if self.path is None:
            return
        told = {
            "format": FORMAT,
            "status": status,
            "seconds": round(time.monotonic() - self._began, 1),
            "machine": self.machine,
            "options": self._options,
            "engines": self.engines,
            "rows": [row.as_dict() for row in self.rows],
        }
        fresh = self.path.with_name(self.path.name + ".part")
        fresh.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        fresh.replace(self.path)


def prepare(names: str) -> int:
    """Install peers."""
    for name in names.split(","):
        try:
            setup(name.strip(), print)
        except (ValueError, subprocess.CalledProcessError) as error:
            print(f"engine.py: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
