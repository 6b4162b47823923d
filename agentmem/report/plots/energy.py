"""F4: joules per correct answer, as a band where the joules are modelled."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from agentmem.report import format as fmt
from agentmem.report.content import Content
from agentmem.report.plots.rows import beside, label_rows, records, wants_log


def draw(figure: Figure, content: Content, theme: dict[str, str]) -> None:
    """One row per system: middle as a point, low to high as a bar; words where there is none."""
    rows = records(content, "t3_end_to_end")
    figure.set_size_inches(9.2, 1.3 + 0.36 * len(rows))
    axes = figure.subplots()
    edges = [fmt.known(r[k]) for r in rows for k in _KEYS]
    known = [e for e in edges if e]
    if wants_log(known):
        axes.set_xscale("log")
        axes.set_xlim(min(known) / 1.6, max(known) * 5)
        axes.xaxis.set_major_locator(LogLocator(numticks=6))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(0, max(known, default=1.0) * 1.32)
    for y, row in enumerate(rows):
        _row(axes, y, row)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: fmt.joules(v)))
    label_rows(axes, [str(row["label"]) for row in rows])
    axes.set_xlabel(f"energy per correct answer, {_source(rows)}")


_KEYS = ("j_per_correct_low", "j_per_correct", "j_per_correct_high")


def _row(axes: Any, y: int, row: dict[str, Any]) -> None:
    low, middle, high = (fmt.known(row[key]) for key in _KEYS)
    if middle is None:
        axes.annotate(
            _no_figure(row),
            (0, y),
            (6, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            va="center",
            fontsize=8,
            style="italic",
        )
        return
    said = fmt.band(low, high, fmt.joules) or fmt.joules(middle)
    right = f"{said}  ({row['correct']} of {row['questions']} right)"
    if low is not None and high is not None:
        band = {"color": row["colour"], "linewidth": 7, "alpha": 0.35}
        axes.plot([low, high], [y, y], solid_capstyle="butt", **band)
    axes.plot([middle], [y], "o", color=row["colour"], markersize=8)
    beside(axes, high or middle, y, right, 8)


def _no_figure(row: dict[str, Any]) -> str:
    around = fmt.band(row["energy_low_j"], row["energy_high_j"], fmt.joules)
    spent = around or fmt.joules(row["energy_j"])
    if not row["questions"]:
        return "no question asked"
    if not row["correct"]:
        return "no correct answer" + (f", {spent} spent" if spent != fmt.UNKNOWN else "")
    return "energy not known"


def _source(rows: list[dict[str, Any]]) -> str:
    sources = sorted({str(r["energy_source"]) for r in rows} - {"none"})
    return " and ".join(sources) if sources else "no source"


def caption(content: Content) -> str:
    rows = records(content, "t3_end_to_end")
    return (
        "Joules of construction, retrieval and generation together, divided by the number of "
        "correct answers. "
        + (
            "Modelled from CPU time, not measured: the bar runs from the low to the high figure, "
            "the point is the middle. Systems whose bars overlap are not ranked."
            if any(r["energy_source"] == "modelled" for r in rows)
            else f"Source: {_source(rows)}."
        )
        + " A system without a correct answer has no such figure."
    )
