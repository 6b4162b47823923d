"""The report's table of what the model server's caches and drafts did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentmem.analysis.engine_use import engine_use
from agentmem.analysis.load import Run
from agentmem.report import format as fmt
from agentmem.report.sheet import Column, Sheet, column, sheet


def _cached(row: dict[str, Any]) -> str:
    """Tokens that a cache served; "at least" when some attempts did not report theirs."""
    known = fmt.known(row["cached_tokens"]) is not None
    return ("≥ " if known and row["cached_missing"] else "") + fmt.count(row["cached_tokens"])


def engine_use_sheet(runs: Sequence[tuple[str, Run]]) -> Sheet:
    return sheet(
        "engine_use",
        "Caches and drafts",
        "Prompt tokens that a session's cache served need no prefill: what a system repeats from "
        "call to call. “Saved” is modelled, not measured: cached tokens times this run's measured "
        "prefill seconds per uncached token, a mean over all prompt lengths. Drafted tokens are "
        "guessed from the prompt and checked together; accepted ones were right. A preempted call "
        "gave way and was computed again. Not told by a server: “–”.",
        runs,
        engine_use,
        [
            column("system", "title", fmt.text),
            column("phase", "phase", fmt.text),
            column("attempts", "attempts"),
            column("prompt tokens", "input_tokens"),
            Column("cached", _cached),
            column("share", "cached_share", fmt.percent),
            column("prefill", "prefill_s", fmt.seconds),
            column("saved, modelled", "modelled_saved_s", fmt.seconds),
            column("drafted", "drafted_tokens"),
            column("accepted", "accepted_tokens"),
            column("preemptions", "preemptions"),
            column("computed again", "recomputed_tokens"),
        ],
    )
