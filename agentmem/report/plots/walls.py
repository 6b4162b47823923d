"""The wall time of each phase as a stack of disjoint states."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from agentmem.analysis.breakdown import STATES
from agentmem.records import PHASES
from agentmem.report import format as fmt
from agentmem.report.content import Content
from agentmem.report.plots.rows import beside, label, label_rows
from agentmem.report.sheets import STATE_NAMES
from agentmem.report.style import STATE_COLOURS


def draw(figure: Figure, content: Content, theme: dict[str, str]) -> None:
    """One panel per phase, one bar per system; each bar is its phase's whole wall time."""
    rows = content.sheet("wall_states").frame.to_dict("records")
    names = list(dict.fromkeys(_label(content, row) for row in rows))
    figure.set_size_inches(9.2, 1.75 + 0.36 * len(names))
    panels = figure.subplots(1, len(PHASES), gridspec_kw={"wspace": 0.08})
    for i, (axes, phase) in enumerate(zip(panels, PHASES, strict=True)):
        mine = {_label(content, row): row for row in rows if row["phase"] == phase}
        for y, name in enumerate(names):
            _bar(axes, y, mine.get(name))
        axes.set_xlim(0, 1.42)
        axes.set_xticks([0, 0.5, 1])
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
        label_rows(axes, names, first=i == 0)
        axes.set_title(phase.capitalize())
    handles = [Patch(color=STATE_COLOURS[s], label=STATE_NAMES[s]) for s in STATES]
    figure.legend(handles=handles, loc="outside upper left", ncols=8, frameon=False, fontsize=8)


def _bar(axes: Axes, y: int, row: dict[Any, Any] | None) -> None:
    wall = fmt.known(row["wall_s"]) if row else None
    if row is None or not wall:
        axes.annotate("does not apply", (0.02, y), va="center", fontsize=8, alpha=0.6)
        return
    left = 0.0
    for state in STATES:
        share = float(row[f"{state}_s"]) / wall
        axes.barh(y, share, left=left, height=0.62, color=STATE_COLOURS[state])
        left += share
    beside(axes, left, y, fmt.seconds(wall))


def _label(content: Content, row: dict[Any, Any]) -> str:
    return label(content, row, str(row["system"]))


def caption(content: Content) -> str:
    return (
        "Shares of each phase's wall time, which stands beside the bar; the parts are disjoint and "
        "add up to it. The table below has them in seconds, and says what each part is."
    )
