"""What a run prints at its end: short columns in groups, findings, and the sums that must hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from agentmem.analysis import breakdown, tables
from agentmem.analysis.breakdown import phase_value
from agentmem.analysis.conserve import Conservation, conservation, unattributed, unattributed_line
from agentmem.analysis.engine_use import engine_totals
from agentmem.analysis.load import Run
from agentmem.analysis.repeats import mean_end_to_end, mean_of, rounds
from agentmem.records import PHASES
from agentmem.report import format as fmt
from agentmem.report import notices, words
from agentmem.report.blocks import Blocks, Group

Entries = list[dict[str, Any]]
Runs = Sequence[Run]
MAX_FINDINGS = 12

LEGEND = (
    "build: the whole write path · /q: mean per question · evidence: share found by source id, and "
    "questions whose answer stands in the retrieved text · {energy}lost: dropped without an error "
    "· * modelled: cached tokens × measured prefill seconds per uncached token · – not known or "
    "does not apply"
)
MODELLED = "energy: modelled from CPU-s, low – high; no order inside the band · "


def summary(run: Run) -> RenderableType:
    """Readable from 80 columns on: figures by system, findings, the proof of the sums."""
    parts = rounds(run)
    entries: Entries = mean_end_to_end(run).to_dict("records")  # type: ignore[assignment]
    modelled = any(row["energy_source"] == "modelled" for row in entries)
    legend = LEGEND.format(energy=MODELLED if modelled else "")
    said = f"means of one of {len(parts)} repeats, lowest – highest at the end · "
    return Lines(
        Text(str(run.name), style="bold"),
        Text(words.headline(run), style="dim"),
        Text(),
        _systems(run, parts, entries),
        Text(),
        Text((said if len(parts) > 1 else "") + legend, style="dim"),
        *_findings(run),
        Text(),
        *_books(run),
    )


def _systems(run: Run, parts: Runs, entries: Entries) -> Blocks:
    times: Entries = mean_of(run, breakdown.phase_times).to_dict("records")  # type: ignore[assignment]
    return Blocks(
        names=tuple(str(row["title"]) for row in entries),
        styles=tuple("italic bright_black" if row["reference"] else "" for row in entries),
        groups=(
            _answers(entries),
            _seconds(entries, times),
            _tokens(parts, entries),
            _calls(entries),
            _cost(entries),
            *_engine(run),
            _memory(parts, entries),
            *([_spread(parts, entries)] if len(parts) > 1 else []),
        ),
    )


def _mine(parts: Runs, system: str) -> Runs:
    """The rounds that a system took part in: references are asked in the first only."""
    return [part for part in parts if system in set(part.phases["system"])] or parts[:1]


def _spread(parts: Runs, entries: Entries) -> Group:
    """Lowest and highest of the repeats."""
    tables_of: list[Entries] = [tables.end_to_end(part).to_dict("records") for part in parts]  # type: ignore[misc]

    def span(system: str, key: str, form: Callable[[Any], str]) -> str:
        found = [fmt.known(r[key]) for rows in tables_of for r in rows if r["system"] == system]
        known = [value for value in found if value is not None]
        whole = len(known) == len(found) > 1
        return f"{form(min(known))} – {form(max(known))}" if whole else fmt.UNKNOWN

    columns: dict[str, tuple[str, Callable[[Any], str]]] = {
        "right": ("correct", fmt.count),
        "whole": ("wall_s", fmt.seconds),
        "CPU-s": ("cpu_s", fmt.short),
    }
    cells = (tuple(span(row["system"], *c) for c in columns.values()) for row in entries)
    return Group(f"of {len(parts)} repeats", tuple(columns), tuple(cells))


def _answers(entries: Entries) -> Group:
    cells = (
        (
            f"{fmt.mean(row['correct'])} of {row['questions']}",
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


def _tokens(parts: Runs, entries: Entries) -> Group:
    """LLM tokens read and written per phase; "≥" where an attempt did not report its own."""
    names = ("input_tokens", "output_tokens")
    cells = (
        (
            *(_spent(parts, row["system"], (p,), names) for p in PHASES),
            _spent(parts, row["system"], PHASES, ("embed_tokens",)),
        )
        for row in entries
    )
    return Group("LLM tokens", ("build", "retrieve", "answer", "embedded"), tuple(cells))


def _spent(parts: Runs, system: str, phases: tuple[str, ...], columns: tuple[str, ...]) -> str:
    mine = _mine(parts, system)
    keys = [(part, phase, c) for part in mine for phase in phases for c in columns]
    missing = sum(phase_value(part, system, phase, f"{c}_missing") for part, phase, c in keys)
    total = sum(phase_value(part, system, phase, c) for part, phase, c in keys)
    return ("≥ " if missing else "") + fmt.mean(total / len(mine))


def _calls(entries: Entries) -> Group:
    cells = (
        (
            fmt.mean(row["chat_calls"]),
            fmt.mean(row["embed_calls"]),
            fmt.mean(row["failed_calls"]),
        )
        for row in entries
    )
    return Group("calls", ("LLM", "embed", "failed"), tuple(cells))


def _cost(entries: Entries) -> Group:
    cells = ((fmt.short(row["cpu_s"]), _energy(row)) for row in entries)
    return Group("cost", ("CPU-s", "energy"), tuple(cells))


def _engine(run: Run) -> Iterator[Group]:
    """What caches and drafts of the model server saved, where it tells."""
    rows: Entries = mean_of(run, engine_totals).to_dict("records")  # type: ignore[assignment]
    if all(fmt.known(row["cached_tokens"]) is None for row in rows):
        return
    cells = (
        (
            fmt.mean(row["cached_tokens"]),
            fmt.seconds(row["modelled_saved_s"]),
            fmt.mean(row["accepted_tokens"]),
        )
        for row in rows
    )
    yield Group("session cache, drafts", ("cached", "saved*", "accepted"), tuple(cells))


def _energy(row: dict[str, Any]) -> str:
    """Joules; a modelled figure is shown by its band alone."""
    return fmt.band(row["energy_low_j"], row["energy_high_j"], fmt.joules) or fmt.joules(
        row["energy_j"]
    )


def _memory(parts: Runs, entries: Entries) -> Group:
    cells = [_kept(_mine(parts, row["system"]), row["system"]) for row in entries]
    return Group("memory", ("added", "lost", "on disk", "failures"), tuple(cells))


def _kept(parts: Runs, system: str) -> tuple[str, ...]:
    """What one round stored, lost, left on disk and failed at, on average."""
    units = pd.concat([p.units[p.units["system"] == system] for p in parts])
    sizes = pd.concat([p.footprints[p.footprints["system"] == system] for p in parts])
    size = sizes[sizes["at"] == "constructed"]["size_bytes"]
    failures = sum(int((p.failures["system"] == system).sum()) for p in parts)
    counts = (units["added"].sum(), units["lost"].sum()) if len(units) else (None, None)
    n = len(parts)
    return (
        *(fmt.UNKNOWN if c is None else fmt.mean(c / n) for c in counts),
        fmt.size(size.sum() / n) if len(size) else fmt.UNKNOWN,
        fmt.mean(failures / n),
    )


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
    n = len(rounds(run))
    of = f" of all {n} repeats" if n > 1 else ""
    yield Text(
        f"Accounts{of}: every phase and bucket, against the journal counted row by row",
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
