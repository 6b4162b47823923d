"""What a run prints at its end: short columns in groups, findings, and the sums that must hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from agentmem.analysis import breakdown, tables
from agentmem.analysis.breakdown import phase_value
from agentmem.analysis.conserve import Conservation, conservation, unattributed, unattributed_line
from agentmem.analysis.load import Run
from agentmem.records import PHASES
from agentmem.report import format as fmt
from agentmem.report import notices, words
from agentmem.report.blocks import Blocks, Group

Entries = list[dict[str, Any]]
MAX_FINDINGS = 12

LEGEND = (
    "build: the whole write path · /q: mean per question · evidence: share found by source id, and "
    "questions whose answer stands in the retrieved text · {energy}lost: dropped without an error "
    "· – not known or does not apply"
)
MODELLED = "energy: modelled from CPU-s, low – high; no order inside the band · "


def summary(run: Run) -> RenderableType:
    """Readable from 80 columns on: figures by system, findings, the proof of the sums."""
    entries: Entries = tables.end_to_end(run).to_dict("records")  # type: ignore[assignment]
    modelled = any(row["energy_source"] == "modelled" for row in entries)
    legend = LEGEND.format(energy=MODELLED if modelled else "")
    return Lines(
        Text(str(run.name), style="bold"),
        Text(words.headline(run), style="dim"),
        Text(),
        _systems(run, entries),
        Text(),
        Text(legend, style="dim"),
        *_findings(run),
        Text(),
        *_books(run),
    )


def _systems(run: Run, entries: Entries) -> Blocks:
    times: Entries = breakdown.phase_times(run).to_dict("records")  # type: ignore[assignment]
    return Blocks(
        names=tuple(str(row["title"]) for row in entries),
        styles=tuple("italic bright_black" if row["reference"] else "" for row in entries),
        groups=(
            _answers(entries),
            _seconds(entries, times),
            _tokens(run, entries),
            _calls(entries),
            _cost(entries),
            _memory(run, entries),
        ),
    )


def _answers(entries: Entries) -> Group:
    cells = (
        (
            f"{row['correct']} of {row['questions']}",
            fmt.percent(row["recall_ids"]),
            fmt.percent(row["recall_text"]),
        )
        for row in entries
    )
    return Group("answers, evidence", ("right", "by id", "by text"), tuple(cells))


def _seconds(entries: Entries, times: Entries) -> Group:
    cells = (
        (
            fmt.seconds(time["construction_s"]) if time["units"] else fmt.UNKNOWN,
            fmt.seconds(time["retrieval_mean_s"]),
            fmt.seconds(time["generation_mean_s"]),
            fmt.seconds(row["wall_s"]),
        )
        for row, time in zip(entries, times, strict=True)
    )
    return Group("time", ("build", "retrieve/q", "answer/q", "whole"), tuple(cells))


def _tokens(run: Run, entries: Entries) -> Group:
    """LLM tokens read and written per phase; "≥" where an attempt did not report its own."""
    cells = (
        (
            *(_spent(run, row["system"], p, ("input_tokens", "output_tokens")) for p in PHASES),
            _embedded(run, row["system"]),
        )
        for row in entries
    )
    return Group("LLM tokens", ("build", "retrieve", "answer", "embedded"), tuple(cells))


def _spent(run: Run, system: str, phase: str, columns: tuple[str, ...]) -> str:
    missing = sum(phase_value(run, system, phase, f"{c}_missing") for c in columns)
    total = sum(phase_value(run, system, phase, c) for c in columns)
    return ("≥ " if missing else "") + fmt.count(total)


def _embedded(run: Run, system: str) -> str:
    total = sum(phase_value(run, system, p, "embed_tokens") for p in PHASES)
    missing = sum(phase_value(run, system, p, "embed_tokens_missing") for p in PHASES)
    return ("≥ " if missing else "") + fmt.count(total)


def _calls(entries: Entries) -> Group:
    cells = (
        (
            fmt.count(row["chat_calls"]),
            fmt.count(row["embed_calls"]),
            fmt.count(row["failed_calls"]),
        )
        for row in entries
    )
    return Group("calls", ("LLM", "embed", "failed"), tuple(cells))


def _cost(entries: Entries) -> Group:
    cells = ((fmt.short(row["cpu_s"]), _energy(row)) for row in entries)
    return Group("cost", ("CPU-s", "energy"), tuple(cells))


def _energy(row: dict[str, Any]) -> str:
    """Joules; a modelled figure is shown by its band alone."""
    return fmt.band(row["energy_low_j"], row["energy_high_j"], fmt.joules) or fmt.joules(
        row["energy_j"]
    )


def _memory(run: Run, entries: Entries) -> Group:
    sizes = run.footprints[run.footprints["at"] == "constructed"]
    cells = []
    for row in entries:
        units = run.units[run.units["system"] == row["system"]]
        size = sizes[sizes["system"] == row["system"]]["size_bytes"]
        failures = int((run.failures["system"] == row["system"]).sum())
        built = len(units) > 0
        cells.append(
            (
                fmt.count(units["added"].sum()) if built else fmt.UNKNOWN,
                fmt.count(units["lost"].sum()) if built else fmt.UNKNOWN,
                fmt.size(size.sum()) if len(size) else fmt.UNKNOWN,
                fmt.count(failures),
            )
        )
    return Group("memory", ("added", "lost", "on disk", "failures"), tuple(cells))


def _findings(run: Run) -> Iterator[RenderableType]:
    """What a reader must know before using a figure, and what failed, one line each."""
    found = [*notices.warnings(run), *_failed(run)]
    if not found:
        return
    yield Text()
    yield Text("Findings", style="bold yellow")
    for line in found[:MAX_FINDINGS]:
        yield Padding(Text(line), (0, 0, 0, 2), expand=False)
    if len(found) > MAX_FINDINGS:
        yield Text(f"  and {len(found) - MAX_FINDINGS} more, in the report")


def _failed(run: Run) -> Iterator[str]:
    table = breakdown.failures(run)
    for row in table[table["kind"] != "silent_loss"].to_dict("records"):
        times = "once" if row["count"] == 1 else f"{row['count']} times"
        yield f"{row['system']}: {row['kind']} in {row['where']}, {times}. {row['message']}"


def _books(run: Run) -> Iterator[RenderableType]:
    """Phases and buckets beside the journal's own totals, red where they do not add up."""
    lines = conservation(run.phases, run.journal)
    late = unattributed(run.phases)["attempts"]
    whole = all(line.holds for line in lines)
    yield Text(
        "Accounts: every phase and bucket, against the journal counted row by row",
        style="bold" if whole else "bold red",
    )
    yield _account(lines)
    yield from (Text(f"  {line}", style="bold red") for line in lines if not line.holds)
    yield Text(f"  {unattributed_line(run.phases)}", style="bold red" if late else "dim")


def _account(lines: tuple[Conservation, ...]) -> Blocks:
    names = list(dict.fromkeys(name for line in lines for name, _ in line.parts))
    cells = [tuple(fmt.count(dict(line.parts).get(n, 0)) for line in lines) for n in names]
    totals = tuple(f"{'=' if line.holds else '≠'} {line.total:,}" for line in lines)
    heads = tuple(line.quantity.replace("embedding tokens", "embedded") for line in lines)
    return Blocks(
        names=(*(f"  {name}" for name in names), "  journal"),
        styles=(*("dim" for _ in names), "bold"),
        groups=(Group("", heads, (*cells, totals)),),
    )
