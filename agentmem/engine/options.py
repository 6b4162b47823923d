"""Options of an engine, as keyword arguments that pass through several hands."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypedDict

Mode = Literal["bf16", "fp32", "int8", "fp8", "int4"]
KV = Literal["auto", "fp32", "bf16", "int8"]
Backend = Literal["auto", "torch", "native"]
MOST_THREADS = 1024
"""More than any machine has; far more of them end a process without a word."""


class EngineOptions(TypedDict, total=False):
    """What EngineCore.load takes; see there. Times in seconds, sizes in bytes and tokens."""

    mode: Mode
    threads: int | None
    window: int | None
    kv: KV
    backend: Backend
    invariant: bool
    cache_bytes: int
    drafts: bool
    max_running: int
    step_tokens: int
    max_queued_background_tokens: int | None
    session_ttl_s: float
    session_ledger: Path | str | None
    calibration: Path | str | None
