"""Values of one run by what can be paired: a unit, a question, a part of a store."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd

from agentmem.analysis.compare_metrics import METRICS, Metric
from agentmem.analysis.energy import Band
from agentmem.analysis.load import Run
from agentmem.analysis.tables import BILL
from agentmem.records import PHASES

Key = tuple[str, str]
"""History, and unit or question or part of the store."""
INDEX = ["history", "unit"]
GROUP = ["system", "phase", *INDEX]
NEED_NOT_APPLY = ("lost", "failed", "ttft")
"""Quantities that a key may not have at all; elsewhere a missing value is an unknown one."""


@dataclass(frozen=True, slots=True)
class Values:
    """One quantity of one system."""

    known: Mapping[Key, float]
    """By key; NaN where not known."""
    failed: frozenset[Key]
    """Units or questions that failed: their cost is not the cost of doing them."""


Table = Mapping[str, Values]
"""All quantities of a system by `Metric.key`, those that it does not have left out."""


def values(run: Run) -> dict[str, Table]:
    """All quantities by system."""
    spent, units = _spent(run), _units(run)
    questions, stores = _questions(run), _stores(run)
    bad = _bad(run.units, "unit"), _bad(run.queries, "question_id")
    found: dict[str, Table] = {}
    for system in run.systems:
        tables: dict[str, pd.DataFrame] = {p: _phase(_rows(spent, system, p), run) for p in PHASES}
        tables["construction"] = tables["construction"].join(_rows(units, system), how="outer")
        asked = _rows(questions, system)
        tables["retrieval"] = tables["retrieval"].join(
            asked[["recall_ids", "recall_text"]], how="outer"
        )
        failed = [frozenset(part.get(system, ())) for part in bad]
        table = _table({**tables, "question": asked}, *failed)
        table["construction.bytes"] = Values(_series(_rows(stores, system)["bytes"]), frozenset())
        found[system] = {k: v for k, v in table.items() if _any_known(v)}
    return found


def _any_known(found: Values) -> bool:
    return any(not math.isnan(v) for v in found.known.values())


def _table(
    rooms: Mapping[str, pd.DataFrame], units: frozenset[Key], questions: frozenset[Key]
) -> dict[str, Values]:
    found = {}
    for metric in METRICS:
        table = rooms[metric.room]
        if metric.name in table:
            bad = units if metric.room == "construction" else questions
            found[metric.key] = _one(metric, table[metric.name], bad)
    return found


def _one(metric: Metric, column: pd.Series, bad: frozenset[Key]) -> Values:
    # A failed question counts as asked and not correct, and a failure counts as one.
    counts_all = metric.name == "failed" or (metric.group == "score" and metric.room == "question")
    optional = metric.name in NEED_NOT_APPLY or metric.group == "score"
    known = column.dropna() if optional else column
    return Values(_series(known), frozenset() if counts_all else bad)


def _series(column: pd.Series) -> dict[Key, float]:
    return dict(zip(column.index.tolist(), column.astype("float64").tolist(), strict=True))


def _rows(table: pd.DataFrame, *labels: str) -> pd.DataFrame:
    """The rows of one system (and phase), by history and unit."""
    levels: Any = list(range(len(labels)))
    try:
        found = table.xs(labels, level=levels)
    except KeyError:
        found = table.iloc[:0].droplevel(levels)
    return cast(pd.DataFrame, found)


def _per_key(table: pd.DataFrame, numbers: pd.DataFrame) -> pd.DataFrame:
    """Sums per system, phase and key; unknown as soon as one term is."""
    keys = [table[name] for name in GROUP]
    absent = numbers.isna().groupby(keys).any()
    return numbers.groupby(keys).sum().mask(absent)


def _billed(table: pd.DataFrame) -> pd.DataFrame:
    chosen = table[table["bucket"].isin(BILL) & table["phase"].isin(PHASES)]
    return chosen.assign(unit=chosen["unit"].fillna("outside any unit"))


COUNTS = ["calls", "tokens", "input_tokens", "output_tokens", "embed_tokens", "unreported"]


def _spent(run: Run) -> pd.DataFrame:
    """Seconds, CPU-seconds, joules, calls and tokens on the systems' bills."""
    windows, calls = _billed(run.windows), _billed(run.calls)
    busy = windows["end_s"] - windows["start_s"] - windows["quiet_s"]
    keep = windows[["worker_cpu_s", "engine_cpu_s", "energy_j"]].astype("float64")
    times = _per_key(windows, keep.assign(seconds=busy.astype("float64")))
    spent = times.join(_per_key(calls, _counts(calls)), how="outer")
    spent[COUNTS] = spent[COUNTS].fillna(0.0)
    tokens = [name for name in COUNTS if name.endswith("tokens")]
    spent.loc[spent["unreported"] > 0, tokens] = np.nan
    answered = calls[~calls["embeds"] & calls["ok"]]
    first = answered.groupby(GROUP)["ttft_s"].mean().astype("float64").rename("ttft")
    return spent.join(first, how="left")


def _counts(calls: pd.DataFrame) -> pd.DataFrame:
    read, wrote = (calls[c].astype("float64") for c in ("input_tokens", "output_tokens"))
    embeds = calls["embeds"]
    llm = ~embeds & calls["endpoint"].ne("other")
    blank = (llm & (read.isna() | wrote.isna())) | (embeds & read.isna())
    return pd.DataFrame(
        {
            "calls": np.ones(len(calls)),
            "tokens": (read + wrote).where(llm).fillna(0.0),
            "input_tokens": read.where(llm).fillna(0.0),
            "output_tokens": wrote.where(llm).fillna(0.0),
            "embed_tokens": read.where(embeds).fillna(0.0),
            "unreported": blank.astype("float64"),
        },
        index=calls.index,
    )


def _phase(spent: pd.DataFrame, run: Run) -> pd.DataFrame:
    """CPU-seconds and joules; unknown for all keys when the engine's share of one is (R2)."""
    either = spent[["worker_cpu_s", "engine_cpu_s"]]
    blind = ((spent["calls"] > 0) & spent["engine_cpu_s"].isna()).any()
    cpu = either.sum(axis=1, min_count=1) * (np.nan if blind else 1.0)
    joules = spent["energy_j"] * (np.nan if spent["energy_j"].isna().any() else 1.0)
    band = Band.of(run.manifest)
    if joules.isna().all() and band is not None:
        joules = cpu * band.mid
    return spent.assign(cpu_seconds=cpu, energy_j=joules)


def _units(run: Run) -> pd.DataFrame:
    units = run.units
    table = units[["system", *INDEX]].assign(
        lost=units["lost"].astype("float64"), failed=units["status"].ne("ok").astype("float64")
    )
    return table.groupby(["system", *INDEX])[["lost", "failed"]].sum()


def _bad(table: pd.DataFrame, unit: str) -> dict[str, list[Key]]:
    """Keys of failed units or questions by system."""
    found: dict[str, list[Key]] = {}
    bad = table[table["status"].ne("ok")]
    for system, history, name in zip(bad["system"], bad["history"], bad[unit], strict=True):
        found.setdefault(system, []).append((history, name))
    return found


def _questions(run: Run) -> pd.DataFrame:
    queries, scores = run.queries, run.scores
    seconds = queries["retrieval_s"].fillna(0.0) + queries["generation_s"]
    columns: dict[str, Any] = {
        "seconds": seconds,
        "accuracy": scores["correct"],
        "failed": ~scores["answered"],
        "f1": scores["f1"],
        "stale": scores["stale_answer"],
        "recall_ids": scores["recall_ids"],
        "recall_text": scores["recall_text"],
    }
    table = pd.DataFrame({n: c.astype("float64") for n, c in columns.items()})
    unit = queries["question_id"].rename("unit")
    return table.groupby([queries["system"], queries["history"], unit]).mean()


def _stores(run: Run) -> pd.DataFrame:
    built = run.footprints[run.footprints["at"].eq("constructed")]
    keys = [built["system"], built["history"], built["store"].rename("unit")]
    return built["size_bytes"].astype("float64").rename("bytes").groupby(keys).mean().to_frame()


def averaged(repeats: Sequence[Values]) -> Values:
    """Several repeats as one: the mean per key; what one of them lacks or failed at is left out."""
    if len(repeats) == 1:
        return repeats[0]
    keys = dict.fromkeys(key for v in repeats for key in v.known)
    mean = {key: sum(v.known.get(key, math.nan) for v in repeats) / len(repeats) for key in keys}
    return Values(mean, frozenset().union(*(v.failed for v in repeats)))
