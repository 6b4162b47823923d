"""How a comparison's figures read: the same in a terminal, a page and a table."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from agentmem.analysis.compare import Comparison, Line
from agentmem.report import format as fmt


def amount(line: Line, side: str) -> str:
    """A side's figure: the sum of a construction, the mean per question of everything else."""
    value, judged = getattr(line.judged, side), line.judged
    if value is None:
        return fmt.UNKNOWN
    whole = line.metric.room == "construction"
    return _form(line)(value if whole else value / judged.pairs)


def _form(line: Line) -> Callable[[Any], str]:
    group = line.metric.group
    if group == "energy":
        return fmt.joules
    forms: dict[str, Callable[[Any], str]] = {
        "time": fmt.seconds,
        "cpu": fmt.seconds,
        "size": fmt.size,
        "score": fmt.percent,
    }
    return forms.get(group, _count)


def _count(value: float) -> str:
    return fmt.count(value) if float(value).is_integer() else fmt.short(value)


def change(line: Line) -> str:
    """Change relative to A; percentage points for scores; per pair where A is zero."""
    judged = line.judged
    if line.metric.group == "score":
        return _signed(judged.difference, " pt")
    if judged.change is None and judged.difference is not None:
        return f"{judged.difference:+.3g} each"
    return _signed(judged.change, " %")


def span(line: Line) -> str:
    """Interval around `change`, empty without one."""
    judged = line.judged
    score = line.metric.group == "score"
    low, high = (
        (judged.difference_low, judged.difference_high)
        if score
        else (judged.change_low, judged.change_high)
    )
    return "" if low is None or high is None else f"{_signed(low, '')} … {_signed(high, '')}"


def _signed(value: float | None, unit: str) -> str:
    if value is None:
        return fmt.UNKNOWN
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    percent = 100 * value
    text = f"{percent:+.0f}" if abs(percent) >= 10 else f"{percent:+.1f}"
    return ("0" if float(text) == 0 else text) + unit


def margin(line: Line) -> str:
    """The smallest effect of interest of a row."""
    if line.metric.group == "score":
        return f"{100 * line.margin:.3g} pt"
    return f"{100 * line.margin:.3g} %"


def tally(comparison: Comparison, against: str) -> str:
    """How many rows came out how."""
    verdicts = [x.judged.verdict for x in comparison.lines if x.against == against]
    order = ("worse", "better", "equal", "no difference shown", "not comparable")
    return ", ".join(f"{verdicts.count(v)} {v}" for v in order if v in verdicts) or "no rows"


def terms(comparison: Comparison) -> str:
    """What the verdicts rest on, in a few sentences."""
    options, m = comparison.options, comparison.options.margins
    level = f"{100 * options.confidence:.3g} %"
    intervals = [x for x in comparison.lines if x.judged.over]
    drawn = " or ".join(sorted({x.judged.over for x in intervals}))
    chance = f"{2 / (1 - options.confidence):.0f}"
    return (
        f"Better or worse: times where the whole {level} interval lies beyond "
        f"{100 * m['time']:.3g} % and the difference is 5 ms a pair or more; counts under fixed "
        f"sampling where they differ by more than {100 * m['count']:.3g} %, all one way or by "
        "their interval; scores by interval and sign test. Pairs of two runs cannot show how the "
        "machine drifted between them; the margin is for that, and repeats widen it to what they "
        "differ by. "
        + (f"Intervals draw {drawn} with replacement (seed {options.seed}). " if drawn else "")
        + f"Of the {len(intervals)} rows with an interval, one in {chance} may come out worse by "
        "chance where nothing changed and no margin holds it back."
    )
