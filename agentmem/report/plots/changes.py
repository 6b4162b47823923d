"""Changes against A with their intervals, one row per system and quantity that may differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

from agentmem.analysis.compare import Comparison, Line
from agentmem.report import compare_words as words

COLOURS = {"worse": "#D55E00", "better": "#0072B2", "no difference shown": "#8A9099"}
REACH = math.log(20)
"""Changes beyond twentyfold are drawn at the edge; their figure is printed."""


def lines_of(comparison: Comparison, against: str) -> list[Line]:
    """Rows worth drawing: relative changes of headline quantities that are not simply equal."""
    return [
        x
        for x in comparison.lines
        if x.against == against
        and (x.metric.headline or x.judged.verdict in ("better", "worse"))
        and x.metric.group != "score"
        and x.judged.verdict in COLOURS
        and x.judged.change is not None
    ]


def draw(figure: Figure, comparison: Comparison, against: str, theme: dict[str, str]) -> None:
    lines = lines_of(comparison, against)
    figure.set_size_inches(9.2, 1.1 + 0.26 * len(lines))
    axes = figure.subplots()
    axes.axvline(0, color=theme["ink"], linewidth=0.8)
    for y, line in enumerate(lines):
        _row(axes, y, line, theme)
    names = [f"{x.title}: {x.metric.room} {x.metric.name}" for x in lines]
    axes.set_yticks(range(len(lines)), names)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    reach = max((abs(v) for x in lines for v in _ends(x)), default=0.1) * 1.15
    axes.set_xlim(-max(reach, 0.15), max(reach, 0.15))
    axes.xaxis.set_major_locator(FixedLocator(_ticks(max(reach, 0.15))))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda v, _: f"{100 * math.expm1(v):+.0f} %" if v else "0")
    )
    axes.set_xlabel(f"change of {against} against A, in ratio")


STEPS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 9.0, 19.0)


def _ticks(reach: float) -> list[float]:
    """Round changes up to the edge, at most four, and as far to the other side."""
    inside = [s for s in STEPS if math.log1p(s) < reach]
    kept = inside[-4:]
    return sorted([0.0, *(math.log1p(s) for s in kept), *(-math.log1p(s) for s in kept)])


def _log(change: float | None) -> float:
    """Log of the ratio, kept on the page."""
    if change is None:
        return 0.0
    return max(-REACH, min(REACH, math.log1p(change) if change > -1 else -REACH))


def _ends(line: Line) -> Sequence[float]:
    judged = line.judged
    low = judged.change if judged.change_low is None else judged.change_low
    high = judged.change if judged.change_high is None else judged.change_high
    return _log(low), _log(judged.change), _log(high)


def _row(axes: Axes, y: int, line: Line, theme: dict[str, str]) -> None:
    low, middle, high = _ends(line)
    colour = COLOURS[line.judged.verdict]
    band: dict[str, Any] = {"height": 0.8, "color": theme["faint"], "alpha": 0.6, "linewidth": 0}
    wide = math.log1p(line.margin)
    axes.barh(y, 2 * wide, left=-wide, **band)
    axes.plot([low, high], [y, y], color=colour, linewidth=2, solid_capstyle="butt")
    axes.plot([middle], [y], "o", color=colour, markersize=5)
    axes.annotate(
        words.change(line), (high, y), (5, 0), textcoords="offset points", va="center", fontsize=7
    )


def caption(comparison: Comparison, against: str) -> str:
    share = f"{100 * comparison.options.confidence:.3g}"
    equal = sum(x.against == against and x.judged.verdict == "equal" for x in comparison.lines)
    return (
        f"Change of {against} against A with {share} % intervals; the axis is in ratios, so that "
        "half and double lie equally far out. The shaded band is the margin within which nothing "
        f"is called a difference. Red: worse, blue: better. {equal} quantities that are equal in "
        "every pair are not drawn."
    )
