"""Who spent what: calls, tokens, seconds and joules per system, phase and bucket."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

import pandas as pd

from agentmem.analysis.energy import Band, energy_columns
from agentmem.analysis.stats import logical_calls, percentile, union_seconds
from agentmem.records import BUCKETS, PHASES, TokenSum

OUTSIDE = "outside"
"""Label of calls and windows that belong to no phase (set-up, late calls)."""
KEYS = ["system", "phase", "bucket"]
PHASE_ORDER = (*PHASES, OUTSIDE)


def token_sum(values: Iterable[Any]) -> TokenSum:
    """Sum of token counts that says how many were unknown (R2)."""
    known = (None if pd.isna(v) else float(v) for v in values)
    return reduce(lambda total, value: total + value, known, TokenSum())


def phase_frame(
    calls: pd.DataFrame, windows: pd.DataFrame, manifest: Mapping[str, Any]
) -> pd.DataFrame:
    """One row per system, phase and bucket in which anything happened (R1-R7).

    Token columns count every attempt; `*_missing` says how many attempts did not report.
    Seconds come from windows without their quiet wait; latencies from successful logical calls.
    """
    band = Band.of(manifest)
    calls, windows = _labelled(calls), _labelled(windows)
    rows = [_row(key, calls, windows, band) for key in _keys(calls, windows)]
    blank = _row(("", "", ""), calls, windows, band)  # gives an empty frame its columns
    return pd.DataFrame(rows, columns=list(blank))


def _row(
    key: tuple[str, str, str], calls: pd.DataFrame, windows: pd.DataFrame, band: Band | None
) -> dict[str, Any]:
    mine, spans = _only(calls, key), _only(windows, key)
    logical = logical_calls(mine)
    return (
        dict(zip(KEYS, key, strict=True))
        | _call_columns(mine, logical)
        | _token_columns(mine)
        | _time_columns(mine, logical, spans)
        | energy_columns(spans, band, called=bool(len(mine)))
    )


def _labelled(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(phase=table["phase"].where(table["phase"].notna(), OUTSIDE))


def _keys(*tables: pd.DataFrame) -> list[tuple[str, str, str]]:
    found = {tuple(map(str, row)) for t in tables for row in t[KEYS].itertuples(index=False)}
    rank = {name: i for i, name in enumerate((*PHASE_ORDER, *BUCKETS))}
    ordered = sorted(found, key=lambda k: (k[0], rank.get(k[2], 99), rank.get(k[1], 99)))
    return [(k[0], k[1], k[2]) for k in ordered]


def _only(table: pd.DataFrame, key: tuple[str, str, str]) -> pd.DataFrame:
    system, phase, bucket = key
    chosen = (table["system"] == system) & (table["phase"] == phase) & (table["bucket"] == bucket)
    return table[chosen]


def _call_columns(calls: pd.DataFrame, logical: pd.DataFrame) -> dict[str, Any]:
    return {
        "attempts": len(calls),
        "logical_calls": len(logical),
        "chat_attempts": int((~calls["embeds"] & (calls["endpoint"] != "other")).sum()),
        "embed_attempts": int(calls["embeds"].sum()),
        "failed_attempts": int((~calls["ok"]).sum()),
        "failed_logical": int((~logical["ok"]).sum()),
    }


TOKEN_SOURCES = {
    "input_tokens": ("input_tokens", False),
    "uncached_tokens": ("uncached_tokens", False),
    "cache_read_tokens": ("cache_read_tokens", False),
    "cache_write_tokens": ("cache_write_tokens", False),
    "output_tokens": ("output_tokens", False),
    "embed_tokens": ("input_tokens", True),
}
"""Phase column -> (call column, whether it counts embedding requests instead of the LLM's)."""
BILLED = ("input_tokens", "output_tokens", "embed_tokens")
"""Columns whose sums must be conserved token for token (R11)."""


def _token_columns(calls: pd.DataFrame) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    modelled = calls[calls["endpoint"] != "other"]
    for name, (source, embeds) in TOKEN_SOURCES.items():
        total = token_sum(modelled.loc[modelled["embeds"] == embeds, source])
        nothing_asked = total.known + total.missing == 0
        columns[name] = 0.0 if nothing_asked else total.value
        columns[f"{name}_missing"] = total.missing
    return columns


def _time_columns(
    calls: pd.DataFrame, logical: pd.DataFrame, windows: pd.DataFrame
) -> dict[str, Any]:
    chat = logical[logical["ok"] & ~logical["embeds"]]["latency_s"]
    embed = logical[logical["ok"] & logical["embeds"]]["latency_s"]
    return {
        "windows": len(windows),
        "wall_s": float((windows["end_s"] - windows["start_s"] - windows["quiet_s"]).sum()),
        "quiet_s": float(windows["quiet_s"].sum()),
        "in_calls_s": union_seconds(calls["start_s"], calls["start_s"] + calls["latency_s"]),
        "chat_p50_s": percentile(chat, 50),
        "chat_p95_s": percentile(chat, 95),
        "embed_p50_s": percentile(embed, 50),
        "embed_p95_s": percentile(embed, 95),
        "queue_s": known_sum(calls["engine_queue_s"]),
        "prefill_s": known_sum(calls["engine_prefill_s"]),
        "decode_s": known_sum(calls["engine_decode_s"]),
        "worker_cpu_s": known_sum(windows["worker_cpu_s"]),
        "engine_cpu_s": known_sum(windows["engine_cpu_s"]),
    }


def known_sum(values: pd.Series[Any]) -> float | None:
    """Sum of the known values, None when none is known."""
    known = values.dropna()
    return float(known.sum()) if len(known) else None
