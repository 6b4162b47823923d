"""`agentmem compare`: what changed between runs, a verdict per row, and conditions for CI."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentmem.errors import UsageError, nearest

if TYPE_CHECKING:
    from agentmem.analysis.compare import Comparison, Options
    from agentmem.analysis.compare_rules import Outcome

FIRED, UNDECIDED = 7, 8
HELP = """\
Compares runs with the first one, A: per system and phase, paired by unit and by question. Each row
ends in a verdict: better, worse, equal, no difference shown, or not comparable and why.

A side is a run folder, or repeats of one run joined by commas. Conditions for CI:
  --fail-on "construction.seconds > +20%"     all systems; the whole interval must lie beyond
  --fail-on "mem0.generation.tokens > 0"      counts: as observed
  --fail-on "any worse"                       any row's verdict; also `any worse in bm25.retrieval`
Exit code 7 when a condition fires, 8 when none fires but one cannot be decided.

examples:
  agentmem compare runs/before runs/after
  agentmem compare runs/a1,runs/a2,runs/a3 runs/b1,runs/b2,runs/b3 --out comparison
  agentmem compare runs/small runs/large --across model --margin time=20%
"""


def add(verbs: Any) -> None:
    """Register the verb."""
    cmd = verbs.add_parser(
        "compare",
        help="what changed between runs, and whether it is shown",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cmd.add_argument("sides", metavar="RUN", nargs="+", help="run folder, or repeats: A1,A2,...")
    cmd.add_argument("--fail-on", metavar="COND", action="append", default=[], help="see above")
    cmd.add_argument(
        "--margin",
        metavar="GROUP=PCT",
        action="append",
        default=[],
        help="smallest effect of interest of time, cpu, energy, count, size or score",
    )
    cmd.add_argument(
        "--across",
        metavar="FACT",
        action="append",
        default=[],
        help="compare although this differs: model, machine, unit, data, contention, ...",
    )
    cmd.add_argument("--confidence", metavar="PCT", type=float, default=95.0, help="default: 95")
    cmd.add_argument("--seed", type=int, default=0, help="seed of the intervals (default: 0)")
    cmd.add_argument("--all", action="store_true", help="print every quantity")
    cmd.add_argument("--out", metavar="DIR", type=Path, help="also write HTML, Markdown, CSV, PNG")
    cmd.add_argument("--json", action="store_true", help="print JSON instead of tables")
    cmd.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    """Run the verb."""
    from agentmem.analysis.compare import Side, compare
    from agentmem.analysis.compare_rules import outcome, parse
    from agentmem.analysis.load import distinct, load

    if len(args.sides) < 2:
        raise UsageError("compare takes two runs or more; for repeats of one side use A1,A2")
    options = _options(args)
    for text in args.fail_on:
        parse(text, None)  # a typing error is told before anything is read
    named = [_folders(text) for text in args.sides]
    distinct(folder for side in named for folder in side)
    sides = [Side(tuple(load(folder) for folder in side)) for side in named]
    systems = list(dict.fromkeys(s for side in sides for run in side.runs for s in run.systems))
    rules = [parse(text, systems) for text in args.fail_on]
    comparison = compare(sides, options)
    outcomes = [outcome(rule, comparison.lines) for rule in rules]
    _show(args, comparison, outcomes)
    if any(o.fired for o in outcomes):
        return FIRED
    return UNDECIDED if any(o.undecided or not o.asked for o in outcomes) else 0


def _folders(text: str) -> list[str]:
    """Run folders of one side."""
    folders = [text] if Path(text).exists() else [part for part in text.split(",") if part]
    if not folders:
        raise UsageError("an empty run folder name")
    return folders


def _options(args: argparse.Namespace) -> Options:
    from agentmem.analysis.compare import Options
    from agentmem.analysis.compare_facts import ACROSS
    from agentmem.analysis.compare_metrics import MARGINS

    for fact in args.across:
        if fact not in ACROSS:
            raise UsageError(f"--across {fact!r}: {nearest(fact, list(ACROSS))}")
    if not 50 <= args.confidence < 100:
        raise UsageError(f"--confidence must be from 50 to under 100; got {args.confidence:g}")
    if args.seed < 0:
        raise UsageError(f"--seed must not be negative; got {args.seed}")
    margins: dict[Any, float] = dict(MARGINS)
    for text in args.margin:
        group, value = _margin(text, list(MARGINS))
        margins[group] = value
    return Options(margins, args.confidence / 100, args.seed, frozenset(args.across))


def _margin(text: str, groups: Sequence[Any]) -> tuple[str, float]:
    group, _, number = text.partition("=")
    if group not in groups:
        raise UsageError(f"--margin {text!r}: {nearest(group, list(groups))}")
    try:
        value = float(number.strip().removesuffix("%")) / 100
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise UsageError(f"--margin {text!r}: expected a percentage, e.g. {group}=10%")
    return group, value


def _show(args: argparse.Namespace, comparison: Comparison, outcomes: Sequence[Outcome]) -> None:
    page = None
    if args.out is not None:
        from agentmem.report.comparison import write

        page = write(comparison, outcomes, args.out).html
    if args.json:
        from agentmem.report.compare_json import as_json

        print(as_json(comparison, outcomes))
    else:
        from rich.console import Console

        from agentmem.report.compare_console import comparison_table

        Console().print(comparison_table(comparison, args.all))
    # With --json the output is JSON and nothing else.
    stream = sys.stderr if args.json else sys.stdout
    for line in (told for o in outcomes for told in _told(o)):
        print(line, file=stream)
    if page is not None:
        print(f"comparison  {page}", file=stream)


def _told(found: Outcome) -> list[str]:
    from agentmem.report import compare_words as words

    text = found.rule.text
    if found.fired:
        named = [
            f"  {x.path} ({x.against} against A): {words.change(x)}  {words.span(x)}".rstrip()
            for x in found.fired
        ]
        return [f"FAILED: {text}", *named]
    if found.undecided:
        first = found.undecided[0]
        why = first.judged.note or "no interval"
        return [f"NOT DECIDED: {text}: {first.path}: {why} ({len(found.undecided)} rows)"]
    return [f"passed: {text}" if found.asked else f"NOT DECIDED: {text}: no such row"]
