"""`agentmem systems`: list, install and check memory systems."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentmem.cli.say import plain
from agentmem.memory import Endpoints, Limits
from agentmem.sandbox.client import Worker
from agentmem.sandbox.environment import ensure, status
from agentmem.sandbox.failure import WorkerFailure
from agentmem.sandbox.specs import Broken, SystemSpec, survey

HELP = """\
Memory systems that can be profiled: bundled ones, folders named in AGENTMEM_SYSTEMS, and
installed packages with an entry point in the group agentmem.systems.

  list               what there is, and whether its environment is ready
  install [NAME..]   build environments ahead of a run (a run builds what it needs)
  check [NAME..]     start each worker, open and close a store, say what failed
"""


def add(verbs: Any) -> None:
    """Register the verb."""
    cmd = verbs.add_parser(
        "systems",
        help="list, install or check memory systems",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cmd.add_argument("action", nargs="?", default="list", choices=("list", "install", "check"))
    cmd.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    cmd.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    """Run the verb."""
    known = survey()
    specs = known.chosen(args.names) if args.names else list(known.specs.values())
    broken = () if args.names else known.broken
    if args.action == "list":
        show(specs, broken)
        return 0
    for bad in broken:
        print(f"agentmem: left out: {plain(bad.reason)}", file=sys.stderr)
    if args.action == "install":
        return install(specs)
    results = [check(spec) for spec in specs]
    return 0 if all(results) and not broken else 5


def install(specs: list[SystemSpec]) -> int:
    """Build every environment, saying what happens."""
    for spec in specs:
        env = ensure(spec, lambda text: print(f"  {text}", flush=True))
        print(f"{spec.name:16} ready  {env.path or env.python}")
    return 0


def show(specs: list[SystemSpec], broken: Sequence[Broken]) -> None:
    """Print the table, and why what is broken is."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for head in ("name", "system", "paradigm", "upstream", "environment"):
        table.add_column(head, overflow="fold")
    for spec in specs:
        upstream = spec.upstream.package if spec.upstream else "built in"
        table.add_row(spec.name, spec.title, spec.paradigm, upstream, status(spec).state)
    for bad in broken:
        table.add_row(escape(plain(bad.names[0])), "–", "–", "–", "broken")
    console = Console()
    console.print(table)
    for bad in broken:
        console.print(f"broken: {plain(bad.reason)}", markup=False, highlight=False, soft_wrap=True)


def check(spec: SystemSpec) -> bool:
    """Start the worker, open an empty store, ask for its footprint, close; print what happened."""
    nowhere = "http://127.0.0.1:9/v1"
    endpoints = Endpoints(nowhere, "none", nowhere, "none", 384, 8192)
    state = status(spec)
    if state.state not in ("host", "ready"):
        print(f"{spec.name:16} {state.state:8} {state.detail}")
        return False
    with tempfile.TemporaryDirectory() as folder:
        worker = Worker(spec, ensure(spec), Path(folder, "store"), Path(folder, "logs"))
        try:
            worker.start()
            worker.open(endpoints, Limits())
            sizes = worker.footprint()
            worker.close()
        except WorkerFailure as err:
            print(f"{spec.name:16} FAILED   {err.message.splitlines()[0]}")
            return False
        finally:
            worker.kill()
    print(f"{spec.name:16} ok       empty store {sum(sizes.values()):,} bytes")
    return True
