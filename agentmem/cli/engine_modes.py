"""`agentmem engine modes`: the number formats, and what of them a model can use."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from agentmem.cli import engine_text

HELP = """\
Lists the modes. With a model, says which of its norms are fused with FP8 quantisation and why the
others are not, and measures on a short text what the orders of rounding change: the engine's own
("round-first", the default: fused and unfused give the same tokens), "no-round" (fused kernels
that skip one rounding), and "cast-first" (transformers' Llama and Qwen2).

examples:
  agentmem engine modes
  agentmem engine modes smollm2-135m --text notes.txt
"""


def add(actions: Any) -> None:
    """Register the action."""
    cmd = actions.add_parser(
        "modes",
        help="the number formats, and what of them a model can use",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    engine_text.add_model(cmd, optional=True)
    cmd.add_argument("--text", type=Path, metavar="FILE", help="default: the model's own")
    cmd.add_argument("--tokens", type=int, default=512, help="tokens to measure on (512)")
    cmd.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    """Run the action."""
    from rich.console import Console
    from rich.table import Table

    from agentmem.engine.quant.modes import MODES

    table = Table(box=None, pad_edge=False)
    table.add_column("mode")
    table.add_column("meaning")
    for name, spec in MODES.items():
        table.add_row(name, spec.meaning)
    Console().print(table)
    if args.model is not None:
        engine_text.check_tokens(args.tokens)
        of_model(args)
    return 0


def of_model(args: argparse.Namespace) -> None:
    """Print what is fused, and what the orders of rounding change."""
    from agentmem.engine.quant.orders import lines, orders

    text = None if args.text is None else engine_text.read(args.text).text
    path = engine_text.open_model(args)
    with engine_text.bar() as bar:
        found = orders(path, args.tokens, text, lambda what, share: bar.at(what, share, 1.0))
    print()
    for line in lines(found):
        print(line)
