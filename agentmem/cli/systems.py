"""`agentmem systems`: list, install and check memory systems."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from agentmem.errors import UsageError, nearest
from agentmem.memory import Endpoints, Limits
from agentmem.sandbox.client import Worker
from agentmem.sandbox.environment import ensure, status
from agentmem.sandbox.failure import WorkerFailure
from agentmem.sandbox.specs import SystemSpec, discover

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


def chosen(names: list[str]) -> list[SystemSpec]:
    """Specs by name, all when none is named; UsageError for an unknown one."""
    known = discover()
    for name in names:
        if name not in known:
            raise UsageError(f"no memory system named {name!r}; {nearest(name, list(known))}")
    return [known[n] for n in (names or list(known))]


def call(args: argparse.Namespace) -> int:
    """Run the verb."""
    specs = chosen(args.names)
    if args.action == "install":
        return install(specs)
    if args.action == "check":
        results = [check(spec) for spec in specs]
        return 0 if all(results) else 5
    show(specs)
    return 0


def install(specs: list[SystemSpec]) -> int:
    """Build every environment, saying what happens."""
    for spec in specs:
        env = ensure(spec, lambda text: print(f"  {text}", flush=True))
        print(f"{spec.name:16} ready  {env.path or env.python}")
    return 0


def show(specs: list[SystemSpec]) -> None:
    """Print the table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for head in ("name", "system", "paradigm", "upstream", "environment"):
        table.add_column(head, overflow="fold")
    for spec in specs:
        upstream = spec.upstream.package if spec.upstream else "built in"
        table.add_row(spec.name, spec.title, spec.paradigm, upstream, status(spec).state)
    Console().print(table)


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
