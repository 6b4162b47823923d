"""`agentmem workload`: look at what systems are fed and asked, and check that it is sound."""

from __future__ import annotations

import argparse
from typing import Any

from agentmem import profile as profiles
from agentmem.workloads.base import Workload, WorkloadSpec
from agentmem.workloads.check import check
from agentmem.workloads.registry import build

HELP = """\
Shows or checks the workload of PROFILE without running anything.

  show   histories, units and questions, the first ones in full
  check  self-checks: does the evidence hold the answer, is the gold unique, does dropping an
         evidence turn lose it, how often would a guess be right, is the length as asked

examples:
  agentmem workload check quickstart
  agentmem workload check quickstart --set workload.history_tokens=64000
  agentmem workload show locomo
"""


def add(verbs: Any) -> None:
    """Register the verb."""
    cmd = verbs.add_parser(
        "workload",
        help="show or check what systems are fed and asked",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cmd.add_argument("action", choices=("show", "check"))
    cmd.add_argument("profile", metavar="PROFILE", help="bundled profile name or TOML file")
    cmd.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="override any profile key, dotted; repeatable",
    )
    cmd.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    """Run the verb."""
    values = dict(profiles.parse_setting(text) for text in args.settings)
    spec = WorkloadSpec.from_mapping(profiles.load(args.profile, values).workload)
    if args.action == "show":
        show(build(spec))
        return 0
    rows = check(spec)
    for row in rows:
        print(f"{'ok' if row.ok else 'FAILED':7} {row.name}: {row.value}")
    return 0 if all(row.ok for row in rows) else 6


def show(workload: Workload) -> None:
    """Print sizes of every history, and the first one's first unit and all its questions."""
    for key, value in workload.params.items():
        print(f"{key:18} {value}")
    for history in workload.histories:
        size = f"{history.source_tokens:,} tokens, {history.source_chars:,} characters"
        print(f"\n{history.history}: {len(history.units)} units, {size}")
    first = workload.histories[0]
    print(f"\nfirst unit, {first.units[0].unit_id}:\n{first.units[0].text}\n")
    for question in first.questions:
        gold = " | ".join(question.golds) or "(not known)"
        print(f"{question.category:20} {question.text}  ->  {gold}")
