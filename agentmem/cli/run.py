"""`agentmem run`: measure, show progress, print the table and where the report lies."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentmem import profile as profiles
from agentmem.profile import Profile

if TYPE_CHECKING:
    from agentmem.runner.run import RunResult

HELP = """\
Profiles memory systems as PROFILE says and writes a run folder with a report.

PROFILE is a bundled name (see below) or a path to a TOML file. Stopped at any point, the same
command goes on where it was; a finished run is shown again at no cost.

examples:
  agentmem run quickstart
  agentmem run quickstart --systems bm25,mem0
  agentmem run quickstart --set answer.max_tokens=64 --set workload.questions=20
  agentmem run quickstart --workload locomo --set workload.samples='["conv-30"]'
  agentmem run quickstart --record replies.jsonl --out runs/live
  agentmem run quickstart --replay replies.jsonl --out runs/replayed
  agentmem run quickstart --replay replies.jsonl --replay-mode through-engine --out runs/forced
  agentmem run quickstart --set engine.mode=int8 --set engine.reuse=false
  agentmem run my.toml --engine http://127.0.0.1:8000/v1 --set engine.model=my-model
"""


def add(verbs: Any) -> None:
    """Register the verb."""
    known = ", ".join(sorted(p.stem for p in profiles.profiles_dir().glob("*.toml")))
    cmd = verbs.add_parser(
        "run",
        help="profile memory systems",
        description=HELP,
        epilog=f"bundled profiles: {known}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cmd.add_argument("profile", metavar="PROFILE", help="bundled profile name or TOML file")
    cmd.add_argument("--systems", metavar="a,b", help="only these systems, in this order")
    cmd.add_argument("--workload", metavar="NAME", help="workload name, e.g. generated, locomo")
    cmd.add_argument(
        "--engine", metavar="local|URL", help="our engine, or an OpenAI-compatible base URL"
    )
    cmd.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="override any profile key, dotted; repeatable",
    )
    cmd.add_argument(
        "--out", metavar="DIR", type=folder, help="run folder (default: runs/<identity>)"
    )
    cmd.add_argument(
        "--capture", action="store_true", help="also keep the text of every model call"
    )
    cmd.add_argument(
        "--record", metavar="FILE", type=Path, help="keep the text of every model reply in FILE"
    )
    cmd.add_argument(
        "--replay",
        metavar="FILE",
        type=Path,
        help="take every model reply from FILE",
    )
    cmd.add_argument(
        "--replay-mode",
        choices=["at-once", "through-engine"],
        default="at-once",
        help="at-once: replies as recorded, no model runs (default); through-engine: the engine is "
        "made to produce them, so that they cost what they cost there",
    )
    cmd.add_argument("--port", type=int, default=0, help="gateway port (default: any free one)")
    cmd.add_argument("--quiet", action="store_true", help="no live progress")
    cmd.set_defaults(call=call)


def folder(text: str) -> Path:
    """A folder named on the command line; an empty name would be the current one."""
    if not text.strip() or "\0" in text:
        raise argparse.ArgumentTypeError("give the name of a folder")
    return Path(text)


def overrides(args: argparse.Namespace) -> dict[str, Any]:
    """Dotted profile keys that the command line sets."""
    values = dict(profiles.parse_setting(text) for text in args.settings)
    if args.systems is not None:
        values["systems"] = [s.strip() for s in args.systems.split(",") if s.strip()]
    if args.workload is not None:
        values["workload.name"] = args.workload
    if args.engine is not None:
        values["engine.url"] = args.engine
    return values


def call(args: argparse.Namespace) -> int:
    """Run the verb."""
    from agentmem.cli.live import Live
    from agentmem.runner.run import RunOptions, run

    profile: Profile = profiles.load(args.profile, overrides(args))
    options = RunOptions(
        args.out, args.capture, args.port, args.record, args.replay, args.replay_mode
    )
    with Live(enabled=not args.quiet) as live:
        result = run(profile, options, live)
    show(result)
    if result.status == "complete":
        return 0
    message = "some work failed (Failures in the report); the same command tries it again"
    print(f"agentmem: incomplete: {message}", file=sys.stderr)
    return 1


def show(result: RunResult) -> None:
    """Print the summary and where to read on."""
    from rich.console import Console

    from agentmem.analysis.load import load
    from agentmem.report import build
    from agentmem.report.console import summary

    console = Console()
    paths = build([result.path], result.path / "report")
    console.print(summary(load(result.path)))
    if not result.fresh:
        console.print("This run was already complete; nothing was measured again.")
    if result.status != "complete":
        console.print(
            "[bold]Incomplete:[/bold] some work failed (see Failures in the report); "
            "the same command tries the unfinished systems again."
        )
    console.print(f"run     {result.path}", highlight=False, soft_wrap=True)
    console.print(f"report  {paths.html}", highlight=False, soft_wrap=True)
