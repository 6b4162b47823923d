"""A table ready to print: a frame for the CSV, and the same rows as formatted cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from agentmem.analysis.load import Run
from agentmem.analysis.tables import REFERENCE_TITLES
from agentmem.report import format as fmt

REFERENCE_NAMES = {*REFERENCE_TITLES, *REFERENCE_TITLES.values()}


@dataclass(frozen=True, slots=True)
class Column:
    """A printed column: heading and how a row's cell reads."""

    heading: str
    cell: Callable[[dict[str, Any]], str]
    number: bool = True
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table of a report."""

    key: str
    heading: str
    note: str
    frame: pd.DataFrame
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    muted: tuple[bool, ...]
    """Rows to print in a lighter tone (the harness's own reference rows)."""
    swatch: tuple[str | None, ...]
    """System whose colour marks the row."""


def column(
    heading: str, key: str, form: Callable[[Any], str] = fmt.count, hint: str = ""
) -> Column:
    """Column that prints one field of the frame."""
    return Column(heading, lambda row: form(row[key]), form is not fmt.text, hint)


def sheet(
    key: str,
    heading: str,
    note: str,
    runs: Sequence[tuple[str, Run]],
    table: Callable[[Run], pd.DataFrame],
    columns: Sequence[Column],
) -> Sheet:
    """Table over one or several runs; with several, a column says which run a row is of."""
    several = len(runs) > 1
    frames = [table(run) for _, run in runs]
    if several:
        for (label, _), frame in zip(runs, frames, strict=True):
            frame.insert(0, "run", label)
        letters = {label: fmt.letter(i) for i, (label, _) in enumerate(runs)}
        which = Column("run", lambda row: letters[row["run"]], False)
        columns = [columns[0], which, *columns[1:]]
    filled = [frame for frame in frames if len(frame)] or frames[:1]
    whole = pd.concat(filled, ignore_index=True)
    records = whole.to_dict("records")
    return Sheet(
        key,
        heading,
        note,
        whole,
        tuple(columns),
        tuple(tuple(c.cell(row) for c in columns) for row in records),  # type: ignore[arg-type]
        tuple(row.get("system") in REFERENCE_NAMES for row in records),
        tuple(row.get("system") for row in records),
    )
