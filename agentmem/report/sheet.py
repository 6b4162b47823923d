"""A table ready to print: a frame for the CSV, and the same rows as formatted cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from agentmem.analysis.load import Run
from agentmem.analysis.repeats import rounds
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
    *,
    whole: bool = False,
) -> Sheet:
    """Table over one or several runs; with several, a column says which run a row is of.

    A run that went round several times has rows of each repeat, told apart by a column, unless the
    table is about the run as a `whole`.
    """
    frames = [_by_repeat(run, table, whole) for _, run in runs]
    more = []
    if len(runs) > 1:
        for (label, _), frame in zip(runs, frames, strict=True):
            frame.insert(0, "run", label)
        letters = {label: fmt.letter(i) for i, (label, _) in enumerate(runs)}
        more = [Column("run", lambda row: letters[row["run"]], False)]
    if any(REPEAT in frame for frame in frames):
        more.append(column("repeat", REPEAT))
    columns = [columns[0], *more, *columns[1:]]
    filled = [frame for frame in frames if len(frame)] or frames[:1]
    joined = pd.concat(filled, ignore_index=True)
    records = joined.to_dict("records")
    return Sheet(
        key,
        heading,
        note,
        joined,
        tuple(columns),
        tuple(tuple(c.cell(row) for c in columns) for row in records),  # type: ignore[arg-type]
        tuple(row.get("system") in REFERENCE_NAMES for row in records),
        tuple(row.get("system") for row in records),
    )


REPEAT = "repeat"
"""Column of a sheet's frame: which time round a row is of, from 1; only where there are several."""


def _by_repeat(run: Run, table: Callable[[Run], pd.DataFrame], whole: bool) -> pd.DataFrame:
    """The table of each round below that of the one before, then the rows of a system together."""
    parts = (run,) if whole else rounds(run)
    frames = [table(part) for part in parts]
    if len(parts) == 1:
        return frames[0]
    for number, frame in enumerate(frames, start=1):
        frame.insert(0, REPEAT, number)
    joined = pd.concat([f for f in frames if len(f)] or frames[:1], ignore_index=True)
    rank = {name: i for i, name in enumerate(dict.fromkeys(joined["system"]))}
    return joined.sort_values("system", key=lambda s: s.map(rank), kind="stable")
