"""Numbers as a reader wants them: a unit, few digits, and a dash for what is unknown."""

from __future__ import annotations

from typing import Any

import pandas as pd

UNKNOWN = "–"


def known(value: Any) -> float | None:
    """The value as a float, None for None, NaN and NA."""
    return None if value is None or pd.isna(value) else float(value)


def count(value: Any) -> str:
    """Whole number with thousands separators."""
    number = known(value)
    return UNKNOWN if number is None else f"{number:,.0f}"


def short(value: Any) -> str:
    """Three significant digits."""
    number = known(value)
    if number is None:
        return UNKNOWN
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def mean(value: Any) -> str:
    """A mean of counts: whole where it is, else three digits, so that 0.5 is not printed as 0."""
    number = known(value)
    return count(value) if number is None or number.is_integer() else short(value)


def percent(value: Any) -> str:
    number = known(value)
    return UNKNOWN if number is None else f"{100 * number:.0f} %"


def seconds(value: Any) -> str:
    """Seconds in the unit that reads best."""
    number = known(value)
    if number is None:
        return UNKNOWN
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1, 1e3, "ms"), (120, 1, "s")):
        if abs(number) < limit:
            return f"{short(number * factor)} {unit}" if number else "0 s"
    return f"{short(number / 60)} min" if number < 7200 else f"{short(number / 3600)} h"


def joules(value: Any) -> str:
    number = known(value)
    if number is None:
        return UNKNOWN
    return f"{short(number)} J" if abs(number) < 1e4 else f"{short(number / 1e3)} kJ"


def size(value: Any) -> str:
    """Bytes in powers of 1,000."""
    number = known(value)
    if number is None:
        return UNKNOWN
    for limit, factor, unit in ((1e3, 1, "B"), (1e6, 1e3, "KB"), (1e9, 1e6, "MB")):
        if number < limit:
            return f"{short(number / factor)} {unit}"
    return f"{short(number / 1e9)} GB"


def band(low: Any, high: Any, with_unit: Any) -> str:
    """`low – high`, the unit once where both have the same; empty when unknown."""
    if known(low) is None or known(high) is None:
        return ""
    first, unit = str(with_unit(low)).rsplit(" ", 1)
    second = str(with_unit(high))
    return f"{first} – {second}" if second.endswith(f" {unit}") else f"{first} {unit} – {second}"


def text(value: Any) -> str:
    if value is None or (not isinstance(value, str) and pd.isna(value)):
        return UNKNOWN
    return str(value)


def letter(index: int) -> str:
    """Short name of the n-th run of a report: A, B, ..."""
    return chr(ord("A") + index) if index < 26 else str(index + 1)


def plural(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
