"""A run that went round several times, taken apart: what is summed over it is no single round's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pandas as pd

from agentmem.analysis.attribute import phase_frame
from agentmem.analysis.load import Run
from agentmem.analysis.stats import wilson
from agentmem.analysis.tables import end_to_end, joules_per_correct

MIXED = "none"
"""Energy source of rounds that do not share one."""


@lru_cache(maxsize=4)
def rounds(run: Run) -> tuple[Run, ...]:
    """The repeats of a run as so many runs, in order; itself where there is only one.

    The journal and the samples stay whole, for they do not say which repeat they are of; failures
    go by their scope. References are asked in the first round only.
    """
    tables = (run.windows, run.queries, run.units)
    numbers = sorted({int(r) for table in tables for r in table["repeat"].dropna()})
    if len(numbers) < 2:
        return (run,)
    return tuple(_round(run, number) for number in numbers)


def _round(run: Run, number: int) -> Run:
    names = ("calls", "windows", "units", "queries", "footprints")
    tables = {name: getattr(run, name) for name in names}
    mine = {name: table[table["repeat"].eq(number)] for name, table in tables.items()}
    # Scores are made from the queries, row by row.
    scores = run.scores[run.queries["repeat"].eq(number)]
    others = set(run.windows[run.windows["repeat"].ne(number)]["scope"])
    here = set(mine["windows"]["scope"])
    scope = run.failures["scope"]
    # A scope that failed before its first window is the first round's for want of a better one.
    failed = scope.isin(here) | (~scope.isin(others) if number == 0 else False)
    phases = phase_frame(mine["calls"], mine["windows"], run.manifest)
    return replace(run, scores=scores, phases=phases, failures=run.failures[failed], **mine)


def mean_of(run: Run, table: Callable[[Run], pd.DataFrame]) -> pd.DataFrame:
    """A table with one row per system, as the mean of its rounds; unknown where one round's is."""
    parts = rounds(run)
    frames = [table(part) for part in parts]
    if len(frames) == 1:
        return frames[0]
    rows = pd.concat(frames, ignore_index=True).to_dict("records")
    mine = {s: [row for row in rows if row["system"] == s] for s in run.systems}
    return pd.DataFrame([_mean(found) for found in mine.values() if found])


def mean_end_to_end(run: Run) -> pd.DataFrame:
    """`tables.end_to_end` as the mean of the rounds, its ratios made anew from the means.

    The interval is that of one round's questions: the same questions asked again tell nothing new.
    """
    table = mean_of(run, end_to_end)
    if len(rounds(run)) == 1:
        return table
    return pd.DataFrame([_with_ratios(row) for row in table.to_dict("records")])


def _mean(rows: Sequence[dict[Any, Any]]) -> dict[str, Any]:
    return {str(key): _one([row[key] for row in rows]) for key in rows[0]}


def _one(values: Sequence[Any]) -> Any:
    """Mean of numbers, a word that all share, else MIXED; None as soon as one is unknown."""
    if any(isinstance(v, str | bool) for v in values):
        return values[0] if len(set(values)) == 1 else MIXED
    if any(v is None or pd.isna(v) for v in values):
        return None
    mean = sum(float(v) for v in values) / len(values)
    return int(mean) if mean.is_integer() else mean


def _with_ratios(row: dict[Any, Any]) -> dict[str, Any]:
    low, high = wilson(row["correct"], row["questions"]) or (None, None)
    if row["energy_source"] == MIXED:
        row |= dict.fromkeys(("energy_j", "energy_low_j", "energy_high_j"))
    return row | {"accuracy_low": low, "accuracy_high": high} | joules_per_correct(row)
