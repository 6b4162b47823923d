"""`agentmem check`: prove the accounting rules R1-R11 on any run folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

HELP = """\
Proves or refutes the accounting rules R1-R11 on run folders: one row per attempt, unknown never 0,
disjoint token buckets, phases that add up to the whole, and so on. Exit code 6 when one is broken.

With --same, also says whether two runs are equal in everything but time (a resumed run and an
uninterrupted one, or two runs of one profile and seed).

examples:
  agentmem check runs/quickstart-1a2b3c4d5e6f
  agentmem check --same runs/a runs/b
"""


def add(verbs: Any) -> None:
    """Register the verb."""
    cmd = verbs.add_parser(
        "check",
        help="prove the accounting rules on a run",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cmd.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="run folder")
    cmd.add_argument("--same", action="store_true", help="compare the first run with the others")
    cmd.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    """Run the verb."""
    from agentmem.analysis.checks import check_run
    from agentmem.analysis.equal import differences
    from agentmem.analysis.load import distinct, load

    if args.same:
        distinct(args.runs)
    runs = [load(path) for path in args.runs]
    broken = 0
    for run in runs:
        print(run.folder)
        for check in check_run(run):
            tag = {True: "ok", False: "BROKEN", None: "-"}[check.ok]
            print(f"  {check.rule:4} {tag:7} {check.title}: {check.detail}")
            broken += check.ok is False
    for other in runs[1:] if args.same else []:
        found = differences(runs[0], other)
        print(f"{runs[0].folder} and {other.folder}: {len(found) or 'no'} differences")
        for line in found[:20]:
            print(f"  {line}")
        broken += bool(found)
    return 6 if broken else 0
