"""The write path's price: what one token, byte, unit of source costs to take in, and when it pays.

Everything here is construction of the measured bucket: set-up, waste and the references are not in
it. Ratios are per token of source as the workload's named tokenizer counts, and per character, for
tokenizers differ.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from agentmem.analysis.load import REFERENCES, Run
from agentmem.analysis.stats import percentile
from agentmem.analysis.tables import mean, title
from agentmem.analysis.writepath_bytes import bytes_on_disk, bytes_written
from agentmem.analysis.writepath_pay import pays_back


def write_path(run: Run) -> pd.DataFrame:
    """One row per system that was given something."""
    rows = [_row(run, s) for s in run.systems if s not in REFERENCES]
    return pd.DataFrame([row for row in rows if row["units"]], columns=list(_row(run, "")))


def _row(run: Run, system: str) -> dict[str, Any]:
    units = run.units[run.units["system"] == system]
    spent = Spent(run, system)
    return (
        {"system": system, "title": title(run, system), "units": len(units)}
        | spent.columns()
        | _amplification(units, spent)
        | _bytes(run, system, units)
        | _amortised(run, system, units, spent)
        | _visible(run, units)
    )


class Spent:
    """Construction on the measured bill of one system."""

    def __init__(self, run: Run, system: str) -> None:
        phases = run.phases
        mine = phases["system"].eq(system) & phases["phase"].eq("construction")
        self.rows = phases[mine & phases["bucket"].eq("measured")]

    def total(self, column: str) -> float:
        """Sum of a column's known values."""
        return float(pd.to_numeric(self.rows[column]).fillna(0).sum())

    @property
    def llm_tokens(self) -> float:
        return self.total("input_tokens") + self.total("output_tokens")

    def columns(self) -> dict[str, Any]:
        """Sums, and how many token figures are missing from them."""
        missing = ("input_tokens_missing", "output_tokens_missing", "embed_tokens_missing")
        return {
            "llm_tokens": self.llm_tokens,
            "embed_tokens": self.total("embed_tokens"),
            "tokens_missing": int(sum(self.total(name) for name in missing)),
            "construction_s": self.total("wall_s") if len(self.rows) else None,
        }


def per(amount: float | None, of: float | None) -> float | None:
    """Ratio; None where one side is unknown or there is nothing to divide by."""
    return None if amount is None or not of else amount / of


def _amplification(units: pd.DataFrame, spent: Spent) -> dict[str, Any]:
    tokens, chars = float(units["source_tokens"].sum()), float(units["source_chars"].sum())
    embedded = spent.total("embed_tokens")
    return {
        "source_tokens": tokens,
        "source_chars": chars,
        "llm_per_source_token": per(spent.llm_tokens, tokens),
        "embed_per_source_token": per(embedded, tokens),
        "llm_per_1000_tokens": per(1000 * spent.llm_tokens, tokens),
        "llm_per_1000_chars": per(1000 * spent.llm_tokens, chars),
        "embed_per_1000_chars": per(1000 * embedded, chars),
        "s_per_1000_chars": per(1000 * spent.total("wall_s"), chars),
    }


def _bytes(run: Run, system: str, units: pd.DataFrame) -> dict[str, Any]:
    sizes = units["source_bytes"]
    source = float(sizes.sum()) if len(units) and sizes.notna().all() else None
    stored, at_open = bytes_on_disk(run, system)
    written = bytes_written(run, system)
    return {
        "source_bytes": source,
        "disk_bytes": stored,
        "disk_at_open_bytes": at_open,
        "written_bytes": written,
        "disk_per_source_byte": per(stored, source),
        "written_per_source_byte": per(written, source),
    }


def _amortised(run: Run, system: str, units: pd.DataFrame, spent: Spent) -> dict[str, Any]:
    """Cost of a unit, and of a question that bears its share of the construction."""
    queries = run.queries[run.queries["system"] == system]
    asked = queries[queries["status"] == "ok"]
    built, n = (spent.total("wall_s") if len(spent.rows) else None), len(queries)
    each = [mean(asked[column]) for column in ("retrieval_s", "generation_s")]
    answer = None if None in each else sum(s for s in each if s is not None)
    share = per(built, n)
    return {
        "s_per_unit": per(built, len(units)),
        "llm_per_unit": per(spent.llm_tokens, len(units)),
        "questions": n,
        "build_s_per_question": share,
        "answer_s_per_question": answer,
        "amortised_s_per_question": None if share is None or answer is None else share + answer,
        "llm_build_per_question": per(spent.llm_tokens, n),
    } | pays_back(run, system)


def _visible(run: Run, units: pd.DataFrame) -> dict[str, Any]:
    """Seconds until a unit can be found: what the system says, else at most until its flush.

    A told 0 means "with the return of construct", and is the time that construct took.
    """
    told = units["visible_s"].notna()
    said = units["visible_s"].where(units["visible_s"] != 0, units["construct_s"])
    seconds = said.where(told, _at_most(run, units))
    return {
        "visible_p50_s": percentile(seconds, 50),
        "visible_p95_s": percentile(seconds, 95),
        "visible_told": int(told.sum()),
    }


def _at_most(run: Run, units: pd.DataFrame) -> pd.Series[Any]:
    """Taking the unit in and the flush that ends the construction of its scope, without waits."""
    windows = run.windows[run.windows["unit"].eq("flush") & run.windows["bucket"].eq("measured")]
    seconds = windows["end_s"] - windows["start_s"] - windows["quiet_s"]
    flush = seconds.groupby(windows["scope"]).sum()
    return units["construct_s"] + units["scope"].map(flush).astype("float64").fillna(0.0)
