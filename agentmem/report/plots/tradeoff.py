"""F2: accuracy against query latency, all systems of all runs, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from agentmem.report import format as fmt
from agentmem.report.content import Content
from agentmem.report.plots.rows import records

MARKERS = "osD^vP*X"
"""One per run, in order."""
LOG_RATIO = 5.0
"""Latencies further apart than this get a logarithmic axis."""


def draw(figure: Figure, content: Content, theme: dict[str, str]) -> None:
    """A point per system and run; left and up is quick and right."""
    rows = [r for r in records(content, "f2_tradeoff") if _placed(r)]
    figure.set_size_inches(9.2, 4.2)
    axes = figure.subplots()
    order = list(content.letters.values())
    for row in rows:
        _point(axes, row, MARKERS[_index(content, row, order) % len(MARKERS)])
    axes.set_ylim(-0.04, 1.04)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: fmt.percent(v)))
    axes.grid(True, axis="both")
    axes.set_ylabel("right answers")
    axes.set_xlabel("seconds from question to answer, mean")
    _scale(axes, [float(r["latency_s"]) for r in rows])
    handles = _legend(rows, order)
    if handles:
        figure.legend(handles=handles, loc="outside right upper", frameon=False, fontsize=8)


def _placed(row: dict[str, Any]) -> bool:
    return fmt.known(row["latency_s"]) is not None and fmt.known(row["accuracy"]) is not None


def _index(content: Content, row: dict[str, Any], order: Sequence[str]) -> int:
    letter = content.letters.get(str(row.get("run")))
    return order.index(letter) if letter in order else 0


def _point(axes: Axes, row: dict[str, Any], marker: str) -> None:
    x, y = float(row["latency_s"]), float(row["accuracy"])
    axes.errorbar(
        [x],
        [y],
        xerr=_bars(x, row["latency_low_s"], row["latency_high_s"]),
        yerr=_bars(y, row["accuracy_low"], row["accuracy_high"]),
        fmt=marker,
        color=row["colour"],
        elinewidth=1,
        capsize=2,
        markersize=7,
        alpha=0.9,
    )


def _bars(value: float, low: Any, high: Any) -> list[list[float]] | None:
    ends = fmt.known(low), fmt.known(high)
    if ends[0] is None or ends[1] is None:
        return None
    return [[max(0.0, value - ends[0])], [max(0.0, ends[1] - value)]]


def _scale(axes: Axes, seconds: Sequence[float]) -> None:
    positive = [s for s in seconds if s > 0]
    if len(positive) > 1 and max(positive) / min(positive) > LOG_RATIO:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: fmt.seconds(v)))


def _legend(rows: Sequence[dict[str, Any]], order: Sequence[str]) -> list[Line2D]:
    systems = {str(r["title"]): str(r["colour"]) for r in rows}
    handles = [_key("o", colour, title) for title, colour in systems.items()]
    if len(order) > 1:
        for i, letter in enumerate(order):
            handles.append(_key(MARKERS[i % len(MARKERS)], "#777777", f"run {letter}"))
    return handles


def _key(marker: str, colour: str, label: str) -> Line2D:
    return Line2D([], [], linestyle="none", marker=marker, color=colour, label=label, markersize=7)


def caption(content: Content) -> str:
    rows = records(content, "f2_tradeoff")
    most = max((int(str(r["questions"])) for r in rows), default=0)
    absent = [str(r["label"]) for r in rows if not _placed(r)]
    left_out = f" Not placed, for want of an answer: {', '.join(absent)}." if absent else ""
    return (
        f"Share of right answers over up to {most} questions against the mean time from question "
        "to answer (retrieval and generation). Bars are 95 % intervals. A failed question counts "
        "as not right and has no time. Grey: references run by the harness." + left_out
    )
