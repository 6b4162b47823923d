"""`agentmem doctor`: what this machine can run and measure, before anything is run."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

HELP = """\
Says what can be measured on this machine (counters, energy sources), which models and
environments are ready, which kernels and number formats the engine would use, and what it falls
back from.
"""


def add(verbs: Any) -> None:
    """Register the verb."""
    cmd = verbs.add_parser("doctor", help="what this machine can run and measure", description=HELP)
    cmd.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    """Run the verb."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from agentmem.meters.probe import measurable

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(width=12)
    table.add_column()
    table.add_column(overflow="fold")
    rows: list[tuple[str, bool | None, str]] = [(p.what, p.available, p.how) for p in measurable()]
    rows += engine_rows() + fused_rows() + model_rows() + system_rows()
    for what, ready, how in rows:
        table.add_row(_tag(ready), escape(what), escape(how))
    Console().print(table)
    return 0


def _tag(ready: bool | None) -> str:
    return {True: "[green]ready[/green]", False: "[yellow]not here[/yellow]", None: ""}[ready]


def engine_rows() -> list[tuple[str, bool | None, str]]:
    """Torch, the kernels, and the modes that run on them."""
    import torch

    from agentmem.engine.kernels.choose import describe

    backend = f"torch {torch.__version__}, {torch.get_num_threads()} threads"
    gpu = torch.cuda.is_available()
    return [
        ("engine: cpu", True, backend),
        ("engine: cuda", gpu, torch.cuda.get_device_name(0) if gpu else "no CUDA device"),
        *kernel_rows(describe()),
        *mode_rows(),
    ]


def kernel_rows(found: Mapping[str, Any]) -> list[tuple[str, bool | None, str]]:
    """Kernels that `backend = auto` takes, what the processor offers, and huge pages."""
    native = found["why_not_native"] is None
    builds = f"builds: {', '.join(found['native'])}" if native else ""
    fallen = f"fall-back: plain torch, because {found['why_not_native']}"
    policy = found["huge_pages"]
    pages = policy in ("always", "madvise")
    return [
        ("engine: kernels", native, f"{found['backend']}; {builds}" if native else fallen),
        ("engine: processor", None, ", ".join(found["cpu_features"]) or "does not say"),
        (
            "engine: huge pages",
            pages,
            f"{policy}: weights are put in them"
            if pages
            else f"{policy or 'not known'}; fall-back: weights in small pages, read more slowly",
        ),
    ]


def mode_rows() -> list[tuple[str, bool | None, str]]:
    """Number formats of the engine, and whether they run on the kernels found here."""
    from agentmem.engine.kernels.choose import choose
    from agentmem.engine.quant.modes import MODES, runnable

    runs = runnable(list(MODES), choose())
    return [
        (
            f"engine mode: {name}",
            name in runs,
            spec.meaning if name in runs else f"needs the native kernels ({spec.meaning})",
        )
        for name, spec in MODES.items()
    ]


def fused_rows() -> list[tuple[str, bool | None, str]]:
    """Architectures whose norms the mode fp8 fuses with quantisation, and why others are not."""
    from agentmem.engine.quant.eligible import by_architecture

    return [
        (
            f"fp8 norms: {arch}",
            found.fuse,
            "fused where activations are calibrated" if found.fuse else f"plain: {found.reason}",
        )
        for arch, found in by_architecture()
    ]


def model_rows() -> list[tuple[str, bool | None, str]]:
    """Pinned models in the cache."""
    from agentmem.modelfiles.fetch import is_fetched
    from agentmem.modelfiles.registry import MODELS

    rows: list[tuple[str, bool | None, str]] = []
    for name in MODELS:
        have = is_fetched(name)
        rows.append(
            (f"model: {name}", have, "in the cache" if have else f"agentmem models pull {name}")
        )
    return rows


def system_rows() -> list[tuple[str, bool | None, str]]:
    """Memory systems and their environments."""
    from agentmem.sandbox.environment import status
    from agentmem.sandbox.specs import survey

    known = survey()
    rows: list[tuple[str, bool | None, str]] = []
    for name, spec in known.specs.items():
        state = status(spec)
        rows.append((f"system: {name}", state.state in ("ready", "host"), state.detail))
    rows += [(f"system: {bad.names[0]}", False, f"broken: {bad.reason}") for bad in known.broken]
    return rows
