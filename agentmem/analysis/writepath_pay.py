"""After how many questions a construction has paid for itself, against handing over everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from agentmem.analysis.load import Run
from agentmem.analysis.validity_rows import stored_nothing

NEVER = float("inf")


def baseline(run: Run) -> str | None:
    """The system that builds nothing and hands over the whole history; None without one."""
    infos = run.manifest.get("systems") or {}
    return next((s for s in run.systems if (infos.get(s) or {}).get("passthrough")), None)


def pays_back(run: Run, system: str) -> dict[str, Any]:
    """Questions until construction and answers cost no more than the baseline's, in seconds and in
    LLM tokens. Infinite where each question costs more than the baseline's; None without one, or
    where nothing was stored, so that there is nothing to pay back."""
    against = baseline(run)
    known = against not in (None, system) and not stored_nothing(run, system)
    return {
        f"pays_after_{name}": _questions(run, system, str(against), cost) if known else None
        for name, cost in (("s", _seconds), ("tokens", _tokens))
    }


def _questions(
    run: Run, system: str, against: str, cost: Callable[[Run, str], tuple[float, float] | None]
) -> float | None:
    ours, theirs = cost(run, system), cost(run, against)
    if ours is None or theirs is None:
        return None
    more, saved = ours[0] - theirs[0], theirs[1] - ours[1]
    if more <= 0:
        return 0.0 if saved >= 0 else None
    return more / saved if saved > 0 else NEVER


def _seconds(run: Run, system: str) -> tuple[float, float] | None:
    """Wall seconds of construction, and of a question."""
    return _cost(run, system, ["wall_s"], [])


def _tokens(run: Run, system: str) -> tuple[float, float] | None:
    """LLM tokens of construction, and of a question; unknown when an attempt did not report."""
    names = ["input_tokens", "output_tokens"]
    return _cost(run, system, names, [f"{name}_missing" for name in names])


def _cost(
    run: Run, system: str, columns: list[str], missing: list[str]
) -> tuple[float, float] | None:
    mine = run.phases[run.phases["system"].eq(system) & run.phases["bucket"].eq("measured")]
    asked = int((run.queries["system"] == system).sum())
    built = mine["phase"].eq("construction")
    if not asked or not built.any() or (missing and mine[missing].sum().sum() > 0):
        return None
    values = mine[columns].apply(pd.to_numeric).fillna(0).sum(axis=1)
    return float(values[built].sum()), float(values[~built].sum()) / asked
