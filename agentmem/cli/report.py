"""`agentmem report`: tables, figures and one HTML file from finished runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

HELP = """\
Builds the report of one or several runs: one self-contained HTML file, Markdown, a CSV per table
and a PNG per figure. Nothing is measured again.

examples:
  agentmem report runs/quickstart-1a2b3c4d5e6f
  agentmem report runs/a runs/b --out compare
"""


def add(verbs: Any) -> None:
    """Register the verb."""
    cmd = verbs.add_parser(
        "report",
        help="build the report of finished runs",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cmd.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="run folder")
    cmd.add_argument("--out", metavar="DIR", type=Path, help="default: report/ of the first run")
    cmd.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    """Run the verb."""
    from rich.console import Console

    from agentmem.analysis.load import load
    from agentmem.report import build
    from agentmem.report.console import summary

    out = args.out or args.runs[0] / "report"
    paths = build(args.runs, out)
    console = Console()
    for run in args.runs:
        console.print(summary(load(run)))
    console.print(f"report  {paths.html}", highlight=False, soft_wrap=True)
    return 0
