"""Tokens per phase, stacked: what is read and written while building, finding and answering."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter

from agentmem.analysis.breakdown import phase_value
from agentmem.analysis.load import Run
from agentmem.analysis.repeats import rounds
from agentmem.analysis.tables import title
from agentmem.records import PHASES
from agentmem.report import format as fmt
from agentmem.report.content import Content
from agentmem.report.plots.rows import beside, label, label_rows
from agentmem.report.sheet import REPEAT
from agentmem.report.style import EMBED_COLOUR, PHASE_COLOURS

WRITTEN_ALPHA = 0.5


def _rows(content: Content) -> list[dict[str, Any]]:
    return [
        {
            "label": label(content, {"run": run_label, REPEAT: number}, title(part, system)),
            "parts": _parts(part, system),
        }
        for run_label, run in content.labelled
        for system in run.systems
        for number, part in _numbered(run)
        if system in part.systems
    ]


def _numbered(run: Run) -> list[tuple[int | None, Run]]:
    """A run's rounds from 1; without a number where there is only one."""
    parts = rounds(run)
    return list(enumerate(parts, start=1)) if len(parts) > 1 else [(None, run)]


def _parts(run: Run, system: str) -> list[tuple[str, str, float]]:
    parts = [
        (phase, column, phase_value(run, system, phase, column))
        for phase in PHASES
        for column in ("input_tokens", "output_tokens")
    ]
    embed = sum(phase_value(run, system, phase, "embed_tokens") for phase in PHASES)
    return [*parts, ("embedding", "embed_tokens", embed)]


def draw(figure: Figure, content: Content, theme: dict[str, str]) -> None:
    """One stacked bar per system, in real proportion."""
    rows = _rows(content)
    figure.set_size_inches(9.2, 1.6 + 0.36 * len(rows))
    axes = figure.subplots()
    for y, row in enumerate(rows):
        left = 0.0
        for phase, column, value in row["parts"]:
            colour, alpha = _paint(phase, column)
            axes.barh(y, value, left=left, height=0.62, color=colour, alpha=alpha)
            left += value
        beside(axes, left, y, fmt.count(left))
    most = max((sum(v for *_, v in row["parts"]) for row in rows), default=0.0)
    axes.set_xlim(0, most * 1.15 or 1.0)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlabel("tokens, all attempts")
    label_rows(axes, [row["label"] for row in rows])
    figure.legend(handles=_legend(), loc="outside upper left", ncols=4, frameon=False, fontsize=8)


def _paint(phase: str, column: str) -> tuple[str, float]:
    if phase == "embedding":
        return EMBED_COLOUR, 1.0
    return PHASE_COLOURS[phase], WRITTEN_ALPHA if column == "output_tokens" else 1.0


def _legend() -> list[Patch]:
    names = {"input_tokens": "read", "output_tokens": "written"}
    parts = [(p, c) for p in PHASES for c in names]
    handles = []
    for phase, column in parts:
        colour, alpha = _paint(phase, column)
        handles.append(Patch(color=colour, alpha=alpha, label=f"{phase}, {names[column]}"))
    return [*handles, Patch(color=EMBED_COLOUR, label="embedded")]


def caption(content: Content) -> str:
    missing = sum(
        int(run.phases[f"{c}_missing"].sum())
        for _, run in content.labelled
        for c in ("input_tokens", "output_tokens", "embed_tokens")
    )
    unknown = (
        f" {fmt.plural(missing, 'figure')} that servers did not report are not in the bars."
        if missing
        else ""
    )
    return (
        "Tokens read and written by the LLM in each phase, and tokens embedded, as the servers "
        "reported them." + unknown
    )
