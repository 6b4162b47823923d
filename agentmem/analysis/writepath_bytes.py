"""Bytes of the write path: what lies on disk after it, and what the worker wrote on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from agentmem.analysis.load import Run

DEFAULT_HZ = 10.0
LEAST_INTERVALS = 20


def bytes_on_disk(run: Run, system: str) -> tuple[float | None, float | None]:
    """Size of a system's stores after construction and when they were opened, over all scopes."""
    mine = run.footprints[run.footprints["system"] == system]
    sizes = [mine[mine["at"] == at]["size_bytes"] for at in ("constructed", "open")]
    built, opened = (float(s.sum()) if len(s) else None for s in sizes)
    return built, opened


def bytes_written(run: Run, system: str) -> float | None:
    """Bytes that the worker handed to storage while constructing; None where it is not known.

    Each window holds the growth of the kernel's counter between its edges. Where one lacks it (an
    older run, or questions that overlapped the construction) the samples stand in.
    """
    windows = run.windows[
        run.windows["system"].eq(system)
        & run.windows["phase"].eq("construction")
        & run.windows["bucket"].eq("measured")
    ]
    if windows.empty:
        return None
    if windows["worker_write_bytes"].notna().all():
        return float(windows["worker_write_bytes"].sum())
    return _sampled(run, windows, system)


def _sampled(run: Run, windows: pd.DataFrame, system: str) -> float | None:
    """From samples of the same counter, read between the samples by straight lines.

    Exact to what was written within one sampling interval at either edge of a window. Unknown,
    therefore, for a construction that lasted less than LEAST_INTERVALS of them.
    """
    samples = run.samples[run.samples["role"] == f"worker:{system}"]
    if samples.empty or samples["write_bytes"].isna().any():
        return None
    hz = float((run.manifest.get("profile") or {}).get("meters", {}).get("hz") or DEFAULT_HZ)
    if (windows["end_s"] - windows["start_s"]).sum() * hz < LEAST_INTERVALS:
        return None
    return sum(_over(windows, counter) for _, counter in samples.groupby("pid", sort=False))


def _over(windows: pd.DataFrame, counter: pd.DataFrame) -> float:
    ordered = counter.sort_values("at_s", kind="stable")
    at: Any = ordered["at_s"].to_numpy(dtype=float)
    value: Any = ordered["write_bytes"].to_numpy(dtype=float)
    ends = np.interp(windows["end_s"].to_numpy(dtype=float), at, value)
    starts = np.interp(windows["start_s"].to_numpy(dtype=float), at, value)
    return float((ends - starts).sum())
