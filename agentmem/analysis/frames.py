"""Rows to pandas frames: one column per field, unknown numbers stay unknown."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pandas as pd

from agentmem.records import Call

ENGINE_FIELDS = {
    "engine_queue_s": "queue_s",
    "engine_prefill_s": "prefill_s",
    "engine_decode_s": "decode_s",
    "engine_cpu_s": "cpu_s",
    "engine_share_s": "step_share_s",
    "engine_drafted_tokens": "drafted_tokens",
    "engine_accepted_tokens": "accepted_tokens",
    "engine_preemptions": "preemptions",
    "engine_recomputed_tokens": "recomputed_tokens",
}
"""Columns of the calls frame that come from `usage.agentmem`."""


def frame(rows: Sequence[Any], kind: type[Any]) -> pd.DataFrame:
    """Frame of rows of one type: whole numbers as Int64 (None is NA), others as float or object."""
    columns = {
        f.name: _column([getattr(row, f.name) for row in rows], str(f.type))
        for f in dataclasses.fields(kind)
    }
    return pd.DataFrame(columns)


def _column(values: list[Any], annotation: str) -> pd.Series[Any]:
    dtypes = {"int": "Int64", "float": "float64", "bool": "bool", "bool | None": "boolean"}
    dtypes |= {"int | None": "Int64", "float | None": "float64"}
    dtype = dtypes.get(annotation, "object")
    return pd.Series(values, dtype=dtype)


def calls_frame(calls: Sequence[Call], booked: dict[str, str | None]) -> pd.DataFrame:
    """Calls with the engine's own figures as columns and the phase first booked."""
    table = frame(calls, Call)
    for column, key in ENGINE_FIELDS.items():
        values = [(call.engine or {}).get(key) for call in calls]
        table[column] = pd.Series(values, dtype="float64")
    table["booked_phase"] = pd.Series([booked[call.call_id] for call in calls], dtype="object")
    table["ok"] = table["outcome"].eq("ok").astype(bool)
    table["embeds"] = table["endpoint"].eq("embedding").astype(bool)
    return table
