"""Accuracy beside query latency, each with an interval (F2's data)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from agentmem.analysis.bootstrap import interval, resample
from agentmem.analysis.load import REFERENCES, Run
from agentmem.analysis.stats import wilson
from agentmem.analysis.tables import title

CONFIDENCE = 0.95


def tradeoff(run: Run) -> pd.DataFrame:
    """One row per system: share of right answers, and mean seconds from question to answer.

    Failed questions count as not right; they have no latency.
    """
    return pd.DataFrame([_row(run, system) for system in run.systems])


def _row(run: Run, system: str) -> dict[str, Any]:
    scores = run.scores[run.scores["system"] == system]
    asked = run.queries[run.queries["system"].eq(system) & run.queries["status"].eq("ok")]
    seconds = (asked["retrieval_s"].fillna(0.0) + asked["generation_s"]).rename("value")
    right = scores["correct"].astype("float64").rename("value")
    latency = _mean(seconds, asked["history"], f"{system}.latency")
    accuracy = _accuracy(right, scores["history"], f"{system}.accuracy")
    names = ("", "_low", "_high")
    return (
        {"system": system, "title": title(run, system), "reference": system in REFERENCES}
        | {"questions": len(scores), "timed": len(seconds.dropna())}
        | {f"accuracy{n}": v for n, v in zip(names, accuracy, strict=True)}
        | {f"latency{n}_s": v for n, v in zip(names, latency, strict=True)}
    )


Span = tuple[float | None, float | None, float | None]
"""Value, low and high end of its interval."""


def _mean(values: pd.Series, histories: pd.Series, name: str) -> Span:
    known = values.dropna()
    if not len(known):
        return None, None, None
    array = known.to_numpy(dtype=float)
    draws = resample(array, np.zeros_like(array), list(histories[known.index]), 0, name)
    low, high = interval(draws.a / draws.pairs, draws.free, CONFIDENCE) or (None, None)
    return float(array.mean()), low, high


def _accuracy(right: pd.Series, histories: pd.Series, name: str) -> Span:
    """Wilson's interval; with enough histories, one over histories, for their questions go
    together."""
    if not len(right):
        return None, None, None
    array = right.to_numpy(dtype=float)
    draws = resample(array, np.zeros_like(array), list(histories), 0, name)
    if draws.over == "histories":
        low, high = interval(draws.a / draws.pairs, draws.free, CONFIDENCE) or (None, None)
    else:
        low, high = wilson(int(array.sum()), len(array)) or (None, None)
    return float(array.mean()), low, high
