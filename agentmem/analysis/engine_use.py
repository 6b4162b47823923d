"""What the engine's caches and drafts did: tokens not computed again, and seconds that models."""

from __future__ import annotations

from typing import Any

import pandas as pd

from agentmem.analysis.attribute import OUTSIDE, PHASE_ORDER, known_sum
from agentmem.analysis.load import REFERENCES, Run
from agentmem.analysis.tables import BILL, title

COUNTS = {
    "drafted_tokens": "engine_drafted_tokens",
    "accepted_tokens": "engine_accepted_tokens",
    "preemptions": "engine_preemptions",
    "recomputed_tokens": "engine_recomputed_tokens",
}
"""Column here -> column of the calls; only our engine tells them."""


def prefill_s_per_token(run: Run) -> float | None:
    """Measured prefill seconds per uncached prompt token of this run's generating calls.

    None where no server told both. A mean over all lengths: long prompts cost more per token.
    """
    calls = _generating(run)
    both = calls[calls["engine_prefill_s"].notna() & calls["uncached_tokens"].notna()]
    tokens = float(both["uncached_tokens"].sum())
    return float(both["engine_prefill_s"].sum()) / tokens if tokens else None


def engine_use(run: Run) -> pd.DataFrame:
    """A row per system and phase: prompt tokens, the cached part of them, drafts, preemptions.

    `modelled_saved_s` is not measured: cached tokens times `prefill_s_per_token`.
    """
    calls, rate = _generating(run), prefill_s_per_token(run)
    rows = []
    for system in run.systems:
        for phase in PHASE_ORDER:
            mine = calls[calls["system"].eq(system) & calls["phase"].eq(phase)]
            if len(mine):
                row = {"system": system, "title": title(run, system), "phase": phase}
                rows.append(row | _figures(mine, rate))
    blank = {"system": "", "title": "", "phase": ""} | _figures(calls.iloc[:0], rate)
    return pd.DataFrame(rows, columns=list(blank))


def engine_totals(run: Run) -> pd.DataFrame:
    """The same as one row per system, in the order of the other tables."""
    calls, rate = _generating(run), prefill_s_per_token(run)
    rows = [
        {"system": system, "title": title(run, system), "reference": system in REFERENCES}
        | _figures(calls[calls["system"].eq(system)], rate)
        for system in run.systems
    ]
    return pd.DataFrame(rows)


def _generating(run: Run) -> pd.DataFrame:
    """Calls that have a prompt cache: not embeddings, on a system's own bill."""
    calls = run.calls
    chosen = calls["bucket"].isin(BILL) & ~calls["embeds"] & calls["endpoint"].ne("other")
    mine = calls[chosen]
    return mine.assign(phase=mine["phase"].where(mine["phase"].notna(), OUTSIDE))


def _figures(calls: pd.DataFrame, rate: float | None) -> dict[str, Any]:
    cached = known_sum(calls["cache_read_tokens"])
    told = calls[calls["cache_read_tokens"].notna() & calls["input_tokens"].notna()]
    read = float(told["input_tokens"].sum())
    return {
        "attempts": len(calls),
        "input_tokens": known_sum(calls["input_tokens"]),
        "cached_tokens": cached,
        "cached_missing": int(calls["cache_read_tokens"].isna().sum()),
        "cached_share": float(told["cache_read_tokens"].sum()) / read if read else None,
        "prefill_s": known_sum(calls["engine_prefill_s"]),
        "modelled_saved_s": None if rate is None or cached is None else cached * rate,
        **{name: known_sum(calls[source]) for name, source in COUNTS.items()},
    }
