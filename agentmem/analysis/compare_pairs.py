"""Values of one run by what can be paired: a unit, a question, a part of a store."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import pandas as pd

from agentmem.analysis.compare_metrics import METRICS, ROOMS, Metric
from agentmem.analysis.energy import Band
from agentmem.analysis.load import Run
from agentmem.analysis.tables import BILL
from agentmem.records import PHASES

Key = tuple[str, str]
"""History, and unit or question or part of the store."""
NEED_NOT_APPLY = ("lost", "failed", "ttft")
"""Quantities that a key may not have at all; elsewhere a missing value is an unknown one."""
INDEX = ["history", "unit"]


@dataclass(frozen=True, slots=True)
class Values:
    """One quantity of one system: value per key, NaN where not known."""

    known: pd.Series
    failed: frozenset[Key]
    """Units or questions that failed: their cost is not the cost of doing them."""


def rounds(run: Run) -> list[Run]:
    """A run that went round several times as so many runs; repeats of one are never pairs."""
    numbers = sorted({int(r) for r in run.windows["repeat"].dropna()} or {0})
    return [_round(run, number) for number in numbers] if len(numbers) > 1 else [run]


def _round(run: Run, number: int) -> Run:
    names = ("calls", "windows", "units", "queries", "footprints")
    # Scores are made from the queries, row by row.
    scores = run.scores[run.queries["repeat"].eq(number)]
    tables = {name: getattr(run, name) for name in names}
    mine = {name: table[table["repeat"].eq(number)] for name, table in tables.items()}
    return replace(run, scores=scores, **mine)


def values(run: Run, system: str) -> dict[str, Values]:
    """All quantities of a system by `Metric.key`; those that it does not have are left out."""
    rooms: dict[str, pd.DataFrame] = {p: phase_table(run, system, p) for p in PHASES}
    rooms["question"] = _questions(run, system)
    rooms["retrieval"] = rooms["retrieval"].join(_recalls(run, system), how="outer")
    bad = {"construction": _bad_units(run, system)}
    bad |= dict.fromkeys(ROOMS[1:], _bad_questions(run, system))
    found = {m.key: _one(m, rooms[m.room], bad[m.room]) for m in METRICS if m.name != "bytes"}
    found["construction.bytes"] = Values(_footprint(run, system), frozenset())
    return {key: v for key, v in found.items() if v.known.notna().any()}


def _one(metric: Metric, table: pd.DataFrame, bad: frozenset[Key]) -> Values:
    # A failed question counts as asked and not correct, and a failure counts as one.
    counts_all = metric.name == "failed" or (metric.group == "score" and metric.room == "question")
    column = table[metric.name] if metric.name in table else pd.Series(dtype="float64")
    known = column.astype("float64")
    if metric.name in NEED_NOT_APPLY or metric.group == "score":
        known = known.dropna()
    return Values(known, frozenset() if counts_all else bad)


def phase_table(run: Run, system: str, phase: str) -> pd.DataFrame:
    """Seconds, CPU-seconds, joules, calls and tokens per key of one phase on the system's bill."""
    windows, calls = _billed(run.windows, system, phase), _billed(run.calls, system, phase)
    spent = _windows(windows).join(_calls(calls), how="outer")
    counted = ["calls", "tokens", "input_tokens", "output_tokens", "embed_tokens", "unreported"]
    spent[counted] = spent[counted].fillna(0.0)
    spent = _processed(spent, Band.of(run.manifest))
    unsaid = spent["unreported"] > 0
    spent.loc[unsaid, ["tokens", "input_tokens", "output_tokens", "embed_tokens"]] = np.nan
    return _with_units(spent, run, system) if phase == "construction" else spent


def _processed(spent: pd.DataFrame, band: Band | None) -> pd.DataFrame:
    """CPU-seconds and joules; unknown for all keys when the engine's share of one is (R2)."""
    either = spent[["worker_cpu_s", "engine_cpu_s"]]
    blind = ((spent["calls"] > 0) & spent["engine_cpu_s"].isna()).any()
    cpu = either.sum(axis=1, min_count=1) * (np.nan if blind else 1.0)
    joules = spent["energy_j"] * (np.nan if spent["energy_j"].isna().any() else 1.0)
    if joules.isna().all() and band is not None:
        joules = cpu * band.mid
    return spent.assign(cpu_seconds=cpu, energy_j=joules)


def _billed(table: pd.DataFrame, system: str, phase: str) -> pd.DataFrame:
    mine = table["system"].eq(system) & table["phase"].eq(phase) & table["bucket"].isin(BILL)
    chosen = table[mine]
    return chosen.assign(unit=chosen["unit"].fillna("outside any unit"))


def _per_key(table: pd.DataFrame) -> pd.DataFrame:
    """Sums per key; unknown as soon as one term is."""
    numbers = list(table.columns.difference(INDEX))
    keys = [table[name] for name in INDEX]
    absent = table[numbers].isna().groupby(keys).any()
    return table.groupby(INDEX)[numbers].sum().mask(absent)


def _windows(windows: pd.DataFrame) -> pd.DataFrame:
    busy = windows["end_s"] - windows["start_s"] - windows["quiet_s"]
    keep = ["worker_cpu_s", "engine_cpu_s", "energy_j"]
    numbers = windows[keep].astype("float64").assign(seconds=busy.astype("float64"))
    return _per_key(windows[INDEX].join(numbers))


def _calls(calls: pd.DataFrame) -> pd.DataFrame:
    read, wrote = (calls[c].astype("float64") for c in ("input_tokens", "output_tokens"))
    llm = ~calls["embeds"] & calls["endpoint"].ne("other")
    blank = (llm & (read.isna() | wrote.isna())) | (calls["embeds"] & read.isna())
    answered = llm & calls["ok"]
    table = calls[INDEX].assign(
        calls=1.0,
        tokens=(read + wrote).where(llm).fillna(0.0),
        input_tokens=read.where(llm).fillna(0.0),
        output_tokens=wrote.where(llm).fillna(0.0),
        embed_tokens=read.where(calls["embeds"]).fillna(0.0),
        unreported=blank.astype("float64"),
    )
    first = calls[answered].groupby(INDEX)["ttft_s"].mean().astype("float64").rename("ttft")
    return _per_key(table).join(first, how="left")


def _with_units(spent: pd.DataFrame, run: Run, system: str) -> pd.DataFrame:
    units = run.units[run.units["system"] == system]
    table = units[INDEX].assign(
        lost=units["lost"].astype("float64"), failed=units["status"].ne("ok").astype("float64")
    )
    return spent.join(_per_key(table), how="left")


def _bad_units(run: Run, system: str) -> frozenset[Key]:
    units = run.units[run.units["system"].eq(system) & run.units["status"].ne("ok")]
    return frozenset(zip(units["history"], units["unit"], strict=True))


def _bad_questions(run: Run, system: str) -> frozenset[Key]:
    bad = run.queries[run.queries["system"].eq(system) & run.queries["status"].ne("ok")]
    return frozenset(zip(bad["history"], bad["question_id"], strict=True))


def _questions(run: Run, system: str) -> pd.DataFrame:
    asked = _renamed(run.queries[run.queries["system"] == system])
    seconds = asked["retrieval_s"].fillna(0.0) + asked["generation_s"]
    times = _mean(asked.assign(seconds=seconds), ["seconds"])
    scores = _renamed(run.scores[run.scores["system"] == system])
    marks = scores.assign(
        accuracy=scores["correct"], failed=~scores["answered"], stale=scores["stale_answer"]
    )
    return times.join(_mean(marks, ["accuracy", "failed", "f1", "stale"]), how="outer")


def _recalls(run: Run, system: str) -> pd.DataFrame:
    scores = _renamed(run.scores[run.scores["system"] == system])
    return _mean(scores, ["recall_ids", "recall_text"])


def _renamed(table: pd.DataFrame) -> pd.DataFrame:
    return table.rename(columns={"question_id": "unit"})


def _mean(table: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    return table[columns].astype("float64").groupby([table["history"], table["unit"]]).mean()


def _footprint(run: Run, system: str) -> pd.Series:
    mine = run.footprints["system"].eq(system) & run.footprints["at"].eq("constructed")
    table = run.footprints[mine].rename(columns={"store": "unit"})
    return table["size_bytes"].astype("float64").groupby([table["history"], table["unit"]]).mean()


def averaged(sides: Iterable[Values]) -> Values:
    """Several repeats as one: the mean per key; what one of them lacks or failed at is left out."""
    several = list(sides)
    total = reduce(operator.add, (v.known for v in several))
    return Values(total / len(several), frozenset().union(*(v.failed for v in several)))
