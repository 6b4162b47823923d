"""Serves a model for a stated time to eight clients of mixed classes, and looks for trouble.

    python benchmarks/engine_soak.py --minutes 30 --json soak.json
    python benchmarks/engine_soak.py --minutes 3 --slice 10 --prompt 200      # does it work?

Three interactive clients send prompts of 1,000 new tokens; five background clients send histories
that grow in sessions, and single prompts; some hang up in the middle. Slices of time take turns:
interactive clients alone, with the background ones as such, and with all traffic interactive, as
if there were no classes. Between slices everything comes to its end and the server is read.

Prints the interactive time to first token (p50, p95) of each kind of slice, and whether memory,
threads, files or blocks grew or a request never ended. Exit code 1 when one did.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aiohttp
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agentmem.modelfiles.fetch import resolve
from benchmarks.engine_parts import machine
from benchmarks.engine_parts.floor import config_of
from benchmarks.engine_parts.soak_clients import Load, background, interactive
from benchmarks.engine_parts.soak_server import Reading, Server, gauges, read
from benchmarks.engine_parts.soak_verdict import PHASES, summary

DRAIN_S = 120.0
EVERY_S = 5.0
CONSOLE = Console(soft_wrap=True, highlight=False)


def main(argv: Sequence[str] | None = None) -> int:
    """Run for the stated time; Ctrl-C ends it with a verdict so far."""
    args = parser().parse_args(argv)
    log = Path(tempfile.mkdtemp(prefix="engine-soak-")) / "server.log"
    arguments = ["--model", args.model, "--embedder", "", "--mode", args.mode]
    arguments += ["--cache-mb", str(args.cache_mb)]
    if args.threads is not None:
        arguments += ["--threads", str(args.threads)]
    soak = Soak(args)
    with Server(arguments, log) as server:
        CONSOLE.print(f"{args.model} at {server.url}, {args.minutes:g} minutes; log {log}")
        try:
            asyncio.run(soak.run(server))
        except KeyboardInterrupt:
            CONSOLE.print("interrupted; the verdict is over what there is")
    told = summary(soak.answers, soak.readings)
    told["server_exit_code"] = server.exit_code
    told["problems"] = problems(told, soak.crashed)
    if args.json is not None:
        args.json.write_text(json.dumps(soak.told() | told, indent=1) + "\n", encoding="utf-8")
    show(told)
    return int(bool(told["problems"]))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    form = argparse.RawDescriptionHelpFormatter
    given = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    given.add_argument("--minutes", type=float, default=30.0, help="when to stop (30)")
    given.add_argument("--json", type=Path, metavar="FILE", help="write everything here")
    given.add_argument("--model", default="smollm2-135m")
    given.add_argument("--mode", default="bf16", help="of `agentmem serve` (bf16)")
    given.add_argument("--threads", type=int, help="of the engine (all cores)")
    given.add_argument("--cache-mb", type=float, default=384.0, help="so that it fills soon (384)")
    given.add_argument("--prompt", type=int, default=1000, metavar="TOKENS", help="interactive")
    given.add_argument("--interactive", type=int, default=3, metavar="N", help="clients (3)")
    given.add_argument("--background", type=int, default=5, metavar="N", help="clients (5)")
    given.add_argument("--pause", type=float, default=3.0, metavar="S", help="between prompts (3)")
    given.add_argument("--slice", type=float, default=60.0, metavar="S", help="of a phase (60)")
    given.add_argument("--stuck", type=float, default=180.0, metavar="S", help="no answer by then")
    return given


class Soak:
    """The run: clients, phases in turn, readings."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.readings: list[Reading] = []
        self.crashed = False
        self._load: Load | None = None
        self._began = time.monotonic()

    @property
    def answers(self) -> list[Any]:
        """All requests so far."""
        return [] if self._load is None else self._load.answers

    def told(self) -> dict[str, Any]:
        """What was run, on what, and every figure."""
        settings = {k: v for k, v in vars(self.args).items() if k != "json"}
        return {
            "format": 1,
            "machine": machine.facts(),
            "options": settings,
            "minutes": (time.monotonic() - self._began) / 60,
            "readings": [asdict(reading) for reading in self.readings],
            "requests": [asdict(answer) for answer in self.answers],
        }

    async def run(self, server: Server) -> None:
        """Phases in turn until the time is up, then the end of everything."""
        self._began = time.monotonic()
        timeout = aiohttp.ClientTimeout(total=None)
        # no idle connections, which would be open files of the server at quiet moments
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as client:
            self._load = load = await self._open(server, client)
            people = [interactive(load, n, self.args.pause) for n in range(self.args.interactive)]
            workers = [background(load, n) for n in range(self.args.background)]
            clients = [asyncio.create_task(one) for one in (*people, *workers)]
            try:
                await self._phases(server, load)
            finally:
                load.ended = True
                for task in clients:
                    task.cancel()
                await asyncio.gather(*clients, return_exceptions=True)

    async def _open(self, server: Server, client: aiohttp.ClientSession) -> Load:
        async with client.get(f"{server.url}/v1/models") as reply:
            name = (await reply.json())["data"][0]["id"]
        args, config = self.args, config_of(resolve(self.args.model))
        vocabulary, window = config.vocab_size, config.window
        return Load(server.url, client, name, vocabulary, window, args.prompt, args.stuck)

    async def _phases(self, server: Server, load: Load) -> None:
        began, turn = self._began, 0
        stop = began + 60 * self.args.minutes
        await self._read(server, load, quiet=True)
        while time.monotonic() < stop and server.alive:
            load.phase = PHASES[turn % len(PHASES)]
            until = min(stop, time.monotonic() + self.args.slice)
            while (left_s := until - time.monotonic()) > 0 and server.alive:
                await asyncio.sleep(min(left_s, EVERY_S))
                await self._read(server, load, quiet=False)
            load.phase = "pause"
            await self._drain(server, load)
            minutes = (time.monotonic() - began) / 60
            CONSOLE.print(
                f"{minutes:5.1f} min  {PHASES[turn % len(PHASES)]:10}  {dict(load.counts)}  "
                f"{self.readings[-1].memory_mb:.0f} MB"
            )
            turn += 1
        self.crashed = not server.alive

    async def _drain(self, server: Server, load: Load) -> None:
        """Wait for the end of every request, and of their work in the server; then read."""
        until = time.monotonic() + max(DRAIN_S, self.args.stuck)
        while load.in_flight and time.monotonic() < until:
            await asyncio.sleep(0.05)
        last = await self._read(server, load, quiet=True)
        while last and last.running + last.waiting and time.monotonic() < until:
            await asyncio.sleep(0.2)
            self.readings.pop()
            last = await self._read(server, load, quiet=True)

    async def _read(self, server: Server, load: Load, quiet: bool) -> Reading | None:
        if not server.alive:
            return None
        try:
            found = await gauges(load.client, server.url)
            at_s = time.monotonic() - self._began
            self.readings.append(read(server.pid, found, at_s, load.phase, quiet))
        except (aiohttp.ClientError, OSError):
            return None
        return self.readings[-1]


def problems(told: dict[str, Any], crashed: bool) -> list[str]:
    """One line for each reason to call it failed."""
    found = [f"{what} grew" for what in told["grew"]]
    found += [f"stuck: {one}" for one in told["stuck"]]
    found += [f"{count} x {detail}" for detail, count in told["failed"].items()]
    if crashed:
        found.append("the server ended by itself")
    elif told["server_exit_code"] != 0:
        found.append(f"the server ended with {told['server_exit_code']}")
    return found


def show(told: dict[str, Any]) -> None:
    """The verdict on the screen."""
    table = Table(title="Interactive time to first token", title_justify="left")
    for name in ("", "requests", "p50 s", "p95 s", "p95 / p95 alone"):
        table.add_column(name, justify="left" if not name else "right")
    for phase, found in told["ttft"].items():
        ratio = told["p95_ratio"].get(phase)
        shown = [f"{found[k]:.2f}" if found[k] is not None else "-" for k in ("p50_s", "p95_s")]
        times = "" if ratio is None else f"{ratio:.2f}"
        table.add_row(phase, str(found["count"]), *shown, times)
    CONSOLE.print(table)
    ratio = told["p95_ratio"]["classes"]
    if ratio is not None:
        word = "within" if ratio <= told["target"] else "above"
        CONSOLE.print(f"with classes p95 is {word} {told['target']} times p95 alone")
    for one in told["growth"]:
        tag = "GREW" if one["grew"] else "steady"
        CONSOLE.print(f"{one['what']:12} {one['first']:9.1f} -> {one['last']:9.1f}  {tag}")
    CONSOLE.print(f"answers: {told['answers']}")
    for problem in told["problems"]:
        CONSOLE.print(f"[red]{problem}[/]")
    CONSOLE.print("[red]trouble[/]" if told["problems"] else "[green]no leak, nothing stuck[/]")


if __name__ == "__main__":
    sys.exit(main())
