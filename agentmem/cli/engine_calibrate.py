"""`agentmem engine calibrate`: static activation scales for the mode fp8."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from agentmem.cli import engine_text
from agentmem.errors import UsageError

HELP = """\
Runs a text through the bf16 model, keeps the largest value that each linear sees, and writes the
scales into DIR/calibration.json, with the hash of the weights that they are for. Without --text,
the model writes the text itself.

examples:
  agentmem engine calibrate smollm2-135m --out calibrations/smollm2
  agentmem serve --model smollm2-135m --mode fp8 --calibration calibrations/smollm2
"""


def add(actions: Any) -> None:
    """Register the action."""
    cmd = actions.add_parser(
        "calibrate",
        help="find static activation scales for the mode fp8",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    engine_text.add_model(cmd)
    cmd.add_argument("--out", type=Path, required=True, metavar="DIR", help="where to write")
    cmd.add_argument("--text", type=Path, metavar="FILE", help="a text of the kind to be served")
    cmd.add_argument("--tokens", type=int, default=2048, help="tokens to run at most (2048)")
    cmd.add_argument(
        "--percentile",
        type=float,
        default=100.0,
        help="share of tokens whose largest value is not clipped (100)",
    )
    cmd.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    """Run the action."""
    from agentmem.engine.quant.calibrate import calibrate

    engine_text.check_tokens(args.tokens)
    if not 0 < args.percentile <= 100:
        raise UsageError(f"--percentile lies in (0, 100], not at {args.percentile:g}")
    text = None if args.text is None else engine_text.read(args.text).text
    path = engine_text.open_model(args)
    engine_text.check_folder(args.out, "--out")
    with engine_text.bar() as bar:
        found = calibrate(
            path,
            args.tokens,
            text,
            args.percentile,
            lambda what, share: bar.at(what, share, 1.0),
        )
    written = found.save(args.out)
    print(f"{len(found.scales)} scales from {found.tokens:,} tokens ({found.source}): {written}")
    return 0
