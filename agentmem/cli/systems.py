"""`agentmem systems`: list, install and check memory systems."""

from __future__ import annotations

import argparse
from typing import Any

from agentmem.cli.say import sayer
from agentmem.errors import UsageError, nearest
from agentmem.sandbox.environment import ensure, status
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
        from agentmem.sandbox.check import check

        results = [check(spec) for spec in specs]
        for result in results:
            print(f"{result.name:16} {'ok' if result.ok else 'FAILED':7} {result.detail}")
        return 0 if all(r.ok for r in results) else 5
    show(specs)
    return 0


def install(specs: list[SystemSpec]) -> int:
    """Build every environment, saying what happens."""
    for spec in specs:
        env = ensure(spec, sayer())
        print(f"{spec.name:16} ready  {env.path}")
    return 0


def show(specs: list[SystemSpec]) -> None:
    """Print the table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for head in ("name", "system", "paradigm", "upstream", "environment"):
        table.add_column(head, overflow="fold")
    for spec in specs:
        table.add_row(
            spec.name,
            spec.title,
            spec.paradigm,
            spec.upstream.package if spec.upstream else "built in",
            status(spec),
        )
    Console().print(table)
