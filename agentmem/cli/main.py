"""The `agentmem` command: dispatch, and one clear line for every expected failure."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import agentmem
from agentmem.cli import (
    check,
    compare,
    doctor,
    engine,
    models,
    report,
    run,
    serve,
    systems,
    workload,
)
from agentmem.cli.say import plain
from agentmem.errors import AgentMemError

VERBS = (run, report, compare, check, workload, systems, models, serve, engine, doctor)

EPILOG = """\
first steps:
  agentmem doctor                       what this machine can run and measure
  agentmem run quickstart               profile four memory systems in minutes
  agentmem report runs/quickstart-*     the report again, from the run folder

every verb explains itself: agentmem VERB --help
"""


class _Parser(argparse.ArgumentParser):
    """Complains in one line, as every other failure of the command does."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"agentmem: {plain(message)}; see {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = _Parser(
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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # data may hold what a terminal's code has not
            stream.reconfigure(errors="backslashreplace")
    args = parser().parse_args(argv)
    try:
        code = int(args.call(args))
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except AgentMemError as err:
        print(f"agentmem: {plain(str(err))}", file=sys.stderr)
        return err.exit_code
    except KeyboardInterrupt:
        print("agentmem: stopped; run the same command again to go on", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader has seen enough; what is still buffered has no reader
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except UnicodeEncodeError as err:  # a path that the locale's code cannot write
        what = f"{err.object[err.start : err.end]!r} cannot be written in {err.encoding}"
        print(f"agentmem: {what}; set LC_ALL=C.UTF-8", file=sys.stderr)
        return 1
    except OSError as err:  # a disk that is full, a folder that may not be read
        where = f"{err.filename}: " if err.filename else ""
        print(f"agentmem: {plain(where + (err.strerror or str(err)))}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
