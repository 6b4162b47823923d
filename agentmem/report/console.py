"""The table printed at the end of a run."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agentmem.analysis import breakdown, tables
from agentmem.analysis.breakdown import phase_value
from agentmem.analysis.conserve import conservation, unattributed, unattributed_line
from agentmem.analysis.load import Run
from agentmem.report import format as fmt

COLUMNS = (
    "system",
    "right",
    "build",
    "retrieve\nper question",
    "generate\nper question",
    "LLM tokens\nbuild / find / answer",
    "embedding\ntokens",
    "calls",
    "CPU-s",
    "energy",
    "lost",
    "failures",
)


def summary(run: Run) -> RenderableType:
    """One row per system, the conservation lines and the unattributed line."""
    table = Table(header_style="bold", pad_edge=False, box=None, row_styles=["", "dim"])
    for i, name in enumerate(COLUMNS):
        table.add_column(name, justify="left" if i == 0 else "right", no_wrap=i == 0)
    times = {r["system"]: r for r in breakdown.phase_times(run).to_dict("records")}
    for row in tables.end_to_end(run).to_dict("records"):
        style = "italic bright_black" if row["reference"] else ""
        cells = _cells(run, row, times[row["system"]])  # type: ignore[arg-type]
        table.add_row(*(Text(cell, style=style) for cell in cells))
    return Group(Text(str(run.name), style="bold"), table, Text(), *_books(run))


def _cells(run: Run, row: dict[str, Any], time: dict[str, Any]) -> tuple[str, ...]:
    system = str(row["system"])
    lost = run.units[run.units["system"] == system]["lost"].sum()
    return (
        str(row["title"]),
        f"{row['correct']} of {row['questions']}",
        fmt.seconds(time["construction_s"]) if time["units"] else fmt.UNKNOWN,
        fmt.seconds(time["retrieval_mean_s"]),
        fmt.seconds(time["generation_mean_s"]),
        _tokens(run, system, bool(row["tokens_missing"])),
        fmt.count(row["embed_tokens"]),
        fmt.count(row["chat_calls"] + row["embed_calls"]),
        fmt.short(row["cpu_s"]),
        _energy(row),
        fmt.count(lost) if time["units"] else fmt.UNKNOWN,
        fmt.count((run.failures["system"] == system).sum()),
    )


def _tokens(run: Run, system: str, incomplete: bool) -> str:
    phases = ("construction", "retrieval", "generation")
    columns = ("input_tokens", "output_tokens")
    sums = [sum(phase_value(run, system, phase, c) for c in columns) for phase in phases]
    return ("≥ " if incomplete else "") + " / ".join(map(fmt.count, sums))


def _energy(row: dict[str, Any]) -> str:
    """Joules with their band; a modelled figure says so in place."""
    around = fmt.band(row["energy_low_j"], row["energy_high_j"], fmt.joules)
    return f"{around}, modelled" if around else fmt.joules(row["energy_j"])


def _books(run: Run) -> list[Text]:
    """Sums that must hold, red where they do not."""
    lines = [
        Text(str(line), style="dim" if line.holds else "bold red")
        for line in conservation(run.phases, run.journal)
    ]
    late = unattributed(run.phases)["attempts"]
    return [*lines, Text(unattributed_line(run.phases), style="bold red" if late else "dim")]
