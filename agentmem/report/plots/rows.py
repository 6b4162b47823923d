"""Horizontal rows, one per system (and run), shared by the figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from agentmem.report.content import Content
from agentmem.report.format import known
from agentmem.report.sheet import REPEAT

LOG_RATIO = 30.0
"""Values further apart than this get a logarithmic axis, and points in place of bars."""


def records(content: Content, key: str) -> list[dict[str, Any]]:
    """Rows of a sheet with a printable label and the system's colour."""
    rows: list[dict[str, Any]] = content.sheet(key).frame.to_dict("records")  # type: ignore[assignment]
    for row in rows:
        row["label"] = label(content, row, str(row["title"]))
        row["colour"] = content.colours.get(row["system"], "#777777")
    return rows


def label(content: Content, row: Mapping[Any, Any], name: str) -> str:
    """`name` with the repeat and the run that a row is of, where there are several."""
    repeat = known(row.get(REPEAT))
    name = name if repeat is None else f"{name} ({repeat:.0f})"
    run = content.letters.get(str(row.get("run")), "")
    return f"{name} · {run}" if len(content.runs) > 1 else name


def label_rows(axes: Axes, labels: Sequence[str], first: bool = True) -> None:
    """Rows from top to bottom, names at the left of the first panel only."""
    axes.set_yticks(range(len(labels)), labels if first else [""] * len(labels))
    axes.set_ylim(len(labels) - 0.4, -0.6)


def wants_log(values: Sequence[float | None]) -> bool:
    positive = [v for v in values if v]
    return len(positive) > 1 and max(positive) / min(positive) > LOG_RATIO


def measure(
    axes: Axes, rows: Sequence[dict[str, Any]], key: str, form: Callable[[Any], str]
) -> None:
    """Bars from zero, or points on a logarithmic axis where values lie far apart.

    A bar on a logarithmic axis would have no honest length, so none is drawn there.
    """
    values = [known(row[key]) for row in rows]
    log = wants_log(values)
    if log:
        _logarithmic(axes, [v for v in values if v])
    else:
        axes.set_xlim(0, max((v for v in values if v), default=1.0) * 1.32)
    for y, (row, value) in enumerate(zip(rows, values, strict=True)):
        if value is None or (log and value <= 0):
            axes.annotate(
                form(row[key]) if value is not None else "does not apply",
                (0, y),
                (4, 0),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                va="center",
                fontsize=8,
                alpha=0.6,
            )
            continue
        if log:
            axes.plot([value], [y], "o", color=row["colour"], markersize=8)
        else:
            axes.barh(y, value, height=0.62, color=row["colour"])
        beside(axes, value, y, form(value), 7 if log else 4)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: form(v)))


def _logarithmic(axes: Axes, positive: Sequence[float]) -> None:
    axes.set_xscale("log")
    axes.set_xlim(min(positive) / 2, max(positive) * 9)
    axes.xaxis.set_major_locator(LogLocator(numticks=5))
    axes.xaxis.set_minor_formatter(NullFormatter())


def beside(axes: Axes, x: float, y: float, text: str, gap: float = 4) -> None:
    """A value printed right of its mark."""
    axes.annotate(
        text, (x, y), (gap, 0), textcoords="offset points", va="center", ha="left", fontsize=8
    )
