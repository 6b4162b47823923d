"""`agentmem engine perplexity`: what each mode loses on one text."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentmem.cli import engine_text
from agentmem.errors import UsageError

if TYPE_CHECKING:
    from agentmem.engine.quant.calibration import Calibration
    from agentmem.engine.quant.modes import ModeLoss

HELP = """\
Perplexity of a text in every mode, and its loss against bf16, in contexts of --window tokens.
Without --text, the first LoCoMo conversations below $AGENTMEM_DATA. The mode fp8+static takes its
scales from --calibration, or finds some on the model's own text.

examples:
  agentmem engine perplexity smollm2-135m
  agentmem engine perplexity smollm2-135m --mode int8,int4 --text notes.txt --tokens 2048
  agentmem engine perplexity gemma3-270m --json losses.json
"""
FORMAT = 1


def add(actions: Any) -> None:
    """Register the action."""
    cmd = actions.add_parser(
        "perplexity",
        help="each mode's perplexity and loss against bf16",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    engine_text.add_model(cmd)
    cmd.add_argument("--mode", default="all", help="all, or a list such as int8,fp8+static")
    cmd.add_argument("--text", type=Path, metavar="FILE", help="the text to measure on")
    cmd.add_argument("--tokens", type=int, default=8192, help="tokens of it at most (8192)")
    cmd.add_argument("--window", type=int, default=512, help="tokens of one context (512)")
    cmd.add_argument("--calibration", type=Path, metavar="DIR", help="scales for fp8+static")
    cmd.add_argument("--backend", choices=("auto", "torch", "native"), default="auto")
    cmd.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    cmd.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    """Run the action."""
    import torch

    from agentmem.engine.kernels.choose import choose
    from agentmem.engine.quant.calibrate import text_windows
    from agentmem.engine.quant.modes import chosen, measure, runnable
    from agentmem.modelfiles.fetch import model_name, verify

    kernels = choose(args.backend)
    modes = chosen(args.mode)
    if args.mode == "all":
        modes = runnable(modes, kernels)
    check(args, modes)
    text = engine_text.sample(args.text)
    path = engine_text.open_model(args)
    windows = text_windows(path, text.text, args.tokens, args.window)
    with engine_text.bar() as bar:
        scales = calibration(path, args.calibration, bar) if "fp8+static" in modes else None
        done: dict[str, int] = {}

        def told(mode: str, tokens: int) -> None:
            done[mode] = done.get(mode, 0) + tokens
            bar.at(mode, done[mode], sum(map(len, windows)))

        rows = measure(path, modes, windows, scales, kernels, told)
    show(rows)
    if args.json is not None:
        head = {
            "format": FORMAT,
            "model": model_name(path),
            "weights": verify(path),
            "backend": kernels.name,
            "threads": torch.get_num_threads(),
            "text": {"source": text.source, "sha256": text.sha256},
            "window": args.window,
            "calibration": None if scales is None else scales.source,
        }
        told_rows = [asdict(row) for row in rows]
        args.json.write_text(json.dumps(head | {"rows": told_rows}, indent=1) + "\n")
    return 0


def check(args: argparse.Namespace, modes: list[str]) -> None:
    """UsageError for what cannot be measured, written or used, before anything is computed."""
    if args.window < 2 or args.tokens < 2:
        raise UsageError("perplexity needs at least two tokens, in windows of at least two")
    if args.calibration is not None and "fp8+static" not in modes:
        raise UsageError("--calibration is for the mode fp8+static, which is not measured")
    if args.json is not None:
        engine_text.check_file(args.json, "--json")


def calibration(path: Path, folder: Path | None, bar: engine_text.Bar) -> Calibration:
    """The scales given, or new ones from the model's own text."""
    from agentmem.engine.quant.calibrate import calibrate
    from agentmem.engine.quant.calibration import load_calibration
    from agentmem.modelfiles.fetch import verify

    if folder is not None:
        return load_calibration(folder, verify(path))
    return calibrate(path, 1024, on_progress=lambda what, share: bar.at(what, share, 1.0))


def show(rows: list[ModeLoss]) -> None:
    """Print the table, and under it what a mode could not do."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for head in ("mode", "perplexity", "loss", "MB of weights", "tokens", "seconds"):
        table.add_column(head, justify="left" if head == "mode" else "right")
    for row in rows:
        loss = "" if row.loss is None else f"{row.loss:+.2%}"
        size = f"{row.weights_bytes / 1e6:.0f}"
        table.add_row(
            row.mode, f"{row.perplexity:.3f}", loss, size, f"{row.tokens:,}", f"{row.seconds:.1f}"
        )
    console = Console()
    console.print(table)
    for row in rows:
        for note in row.notes:
            console.print(f"{row.mode}: {note}", markup=False, highlight=False, soft_wrap=True)
