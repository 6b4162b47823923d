"""Where the `agentmem` command starts: nothing is imported before Ctrl-C is answered."""

from __future__ import annotations

import sys


def start() -> int:
    """Entry point; returns the exit code."""
    try:
        from agentmem.cli.main import main

        return main()
    except KeyboardInterrupt:
        print("agentmem: stopped; run the same command again to go on", file=sys.stderr)
        return 130
