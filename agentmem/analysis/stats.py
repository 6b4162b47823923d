"""Small statistics on calls: logical calls, percentiles, covered time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd


def logical_calls(calls: pd.DataFrame) -> pd.DataFrame:
    """One row per logical call: ok if its last attempt was, latency over all its attempts (R1)."""
    groups: dict[str, list[tuple[Any, ...]]] = {}
    columns = [calls[c] for c in ("logical_id", "attempt", "start_s", "latency_s", "ok", "embeds")]
    for logical, *attempt in zip(*columns, strict=True):
        groups.setdefault(logical, []).append(tuple(attempt))
    rows = [_logical(logical, sorted(group)) for logical, group in groups.items()]
    names = ["logical_id", "ok", "embeds", "latency_s", "attempts"]
    table = pd.DataFrame(rows, columns=names)
    return table.astype({"ok": bool, "embeds": bool, "latency_s": float})


def _logical(logical: str, attempts: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    ends = [start + latency for _, start, latency, _, _ in attempts]
    latency = max(ends) - min(start for _, start, *_ in attempts)
    return logical, attempts[-1][3], attempts[0][4], latency, len(attempts)


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


def wilson(hits: float, n: int, z: float = 1.96) -> tuple[float, float] | None:
    """95 % interval of a share by Wilson's score, None for no trials."""
    if not n:
        return None
    share, spread = hits / n, z * z / n
    centre = (share + spread / 2) / (1 + spread)
    half = z * ((share * (1 - share) / n + spread / (4 * n)) ** 0.5) / (1 + spread)
    return max(0.0, centre - half), min(1.0, centre + half)
