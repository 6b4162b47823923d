"""Joules of a set of windows: from a counter where one was read, else modelled as a band (R6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

MEASURED = ("counter", "integrated_power")
MODELLED = "modelled"


@dataclass(frozen=True, slots=True)
class Band:
    """Watts per busy core, stated and not measured: low, middle, high."""

    low: float
    mid: float
    high: float

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Band | None:
        """The run's band, None where the manifest states none."""
        stated = (manifest.get("energy") or {}).get("w_per_core")
        return cls(*(float(stated[k]) for k in ("low", "mid", "high"))) if stated else None


def energy_columns(windows: pd.DataFrame, band: Band | None, *, called: bool) -> dict[str, Any]:
    """Joules read, per source, beside joules modelled; they are never added together.

    `energy_j` repeats the figure to quote and `energy_source` says which it is: a reading if every
    window has one of one source, else the model, else unknown.
    """
    cpu = cpu_seconds(windows, called=called)
    columns: dict[str, Any] = {"cpu_s": cpu}
    for source in MEASURED:
        columns[f"{source}_j"] = _read(windows, source)
    for edge in ("low", "mid", "high"):
        watts = getattr(band, edge) if band else None
        columns[f"modelled_{edge}_j"] = None if cpu is None or watts is None else cpu * watts
    return columns | _quoted(columns)


def cpu_seconds(windows: pd.DataFrame, *, called: bool) -> float | None:
    """CPU-seconds of worker and engine; None as soon as one of them is unknown in a window (R2).

    The harness's own reference rows have no worker, and an engine that was not called needs no
    figure.
    """
    if windows.empty or (called and windows["engine_cpu_s"].isna().any()):
        return None
    if windows.loc[windows["bucket"] != "harness", "worker_cpu_s"].isna().any():
        return None
    both = windows[["worker_cpu_s", "engine_cpu_s"]]
    return float(both.sum().sum()) if both.notna().any(axis=None) else None


def _read(windows: pd.DataFrame, source: str) -> float | None:
    """Joules of one source, None unless every window was read from it."""
    if windows.empty or not windows["energy_source"].eq(source).all():
        return None
    joules = windows["energy_j"]
    return None if joules.isna().any() else float(joules.sum())


def _quoted(columns: Mapping[str, Any]) -> dict[str, Any]:
    for source in MEASURED:
        if columns[f"{source}_j"] is not None:
            return {"energy_j": columns[f"{source}_j"], "energy_source": source}
    if columns["modelled_mid_j"] is not None:
        return {"energy_j": columns["modelled_mid_j"], "energy_source": MODELLED}
    return {"energy_j": None, "energy_source": "none"}


def add_up(values: list[float | None]) -> float | None:
    """Sum that is unknown as soon as one term is."""
    known = [v for v in values if v is not None and not pd.isna(v)]
    return sum(known) if known and len(known) == len(values) else None
