"""Small statistics on calls: logical calls, percentiles, covered time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd


def logical_calls(calls: pd.DataFrame) -> pd.DataFrame:
    """One row per logical call: ok if its last attempt was, latency over all its attempts (R1)."""
    columns = ["logical_id", "embeds", "kind", "ok", "latency_s", "attempts"]
    if calls.empty:
        return pd.DataFrame(columns=columns).astype({"ok": bool, "embeds": bool})
    ordered = calls.assign(end_s=calls["start_s"] + calls["latency_s"]).sort_values(
        ["attempt", "start_s"]
    )
    groups = ordered.groupby("logical_id", sort=False)
    table = groups.agg(
        embeds=("embeds", "first"),
        kind=("kind", "last"),
        ok=("ok", "last"),
        start_s=("start_s", "min"),
        end_s=("end_s", "max"),
        attempts=("attempt", "size"),
    ).reset_index()
    return table.assign(latency_s=table["end_s"] - table["start_s"])[columns]


def percentile(values: pd.Series[Any], q: float) -> float | None:
    """The q-th percentile by linear interpolation, None without values."""
    known = values.dropna()
    return float(np.percentile(known.to_numpy(dtype=float), q)) if len(known) else None


def union_seconds(starts: pd.Series[Any], ends: pd.Series[Any]) -> float:
    """Seconds covered by at least one of the intervals; unknown ends are left out."""
    spans = sorted((s, e) for s, e in zip(starts, ends, strict=True) if e >= s)
    covered, reach = 0.0, float("-inf")
    for start, end in spans:
        covered += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    return covered


def wilson(hits: int, n: int, z: float = 1.96) -> tuple[float, float] | None:
    """95 % interval of a share by Wilson's score, None for no trials."""
    if not n:
        return None
    share, spread = hits / n, z * z / n
    centre = (share + spread / 2) / (1 + spread)
    half = z * ((share * (1 - share) / n + spread / (4 * n)) ** 0.5) / (1 + spread)
    return max(0.0, centre - half), min(1.0, centre + half)
