"""`agentmem engine`: the local engine's own tools, one action a module."""

from __future__ import annotations

import argparse
from typing import Any

from agentmem.cli import engine_calibrate, engine_modes, engine_perplexity, engine_session

ACTIONS = (engine_modes, engine_perplexity, engine_calibrate, engine_session)
"""Modules with `add(actions)`."""

HELP = """\
The local engine's number formats: what there is, what each loses, and scales for FP8.

examples:
  agentmem engine modes                     what there is
  agentmem engine modes smollm2-135m        and what of it this model can use
  agentmem engine perplexity smollm2-135m   what each mode loses
  agentmem engine calibrate smollm2-135m --out calibrations/smollm2
  agentmem engine session list              what a running server keeps
"""


def add(verbs: Any) -> None:
    """Register the verb."""
    cmd = verbs.add_parser(
        "engine",
        help="number formats of the local engine: losses, calibration",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = cmd.add_subparsers(dest="action", metavar="ACTION", required=True)
    for module in ACTIONS:
        module.add(actions)
