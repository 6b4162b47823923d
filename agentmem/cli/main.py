"""The `agentmem` command: dispatch, and one clear line for every expected failure."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import agentmem
from agentmem.cli import check, compare, doctor, models, report, run, serve, systems, workload
from agentmem.cli.say import plain
from agentmem.errors import AgentMemError

VERBS = (run, report, compare, check, workload, systems, models, serve, doctor)

EPILOG = """\
first steps:
  agentmem doctor                       what this machine can run and measure
  agentmem run quickstart               profile four memory systems in minutes
  agentmem report runs/quickstart-*     the report again, from the run folder

every verb explains itself: agentmem VERB --help
"""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="agentmem",
        description="Profile agent memory systems: what construction, retrieval and generation "
        "each cost in tokens, calls, seconds, bytes and joules.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"agentmem {agentmem.__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True)
    for module in VERBS:
        module.add(verbs)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    args = parser().parse_args(argv)
    try:
        return int(args.call(args))
    except AgentMemError as err:
        print(f"agentmem: {plain(str(err))}", file=sys.stderr)
        return err.exit_code
    except KeyboardInterrupt:
        print("agentmem: stopped; run the same command again to go on", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0


if __name__ == "__main__":
    sys.exit(main())
