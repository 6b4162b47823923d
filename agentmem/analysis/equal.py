"""Are two runs the same but for time? What a resumed run must be of an uninterrupted one.

Left out: times, ids, cache hits (an engine restart empties a cache), and work that a kill wasted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pandas as pd

from agentmem.analysis.load import Run

CALL_KEYS = (
    "scope", "unit", "phase", "bucket", "stage", "kind", "endpoint", "stream", "outcome", "status",
    "attempt", "input_tokens", "output_tokens", "own_input_tokens", "own_output_tokens",
    "sequences", "finish_reason", "max_tokens", "constrained", "seed", "request_hash",
    "response_hash",
)  # fmt: skip
UNIT_KEYS = (
    "scope", "unit", "index", "status", "source_chars", "source_tokens", "added", "updated",
    "deleted", "lost", "store_version",
)  # fmt: skip
QUERY_KEYS = (
    "scope", "question_id", "status", "answer", "retrieved_ids", "retrieved_texts", "k", "overflow",
    "cut_tokens", "context_tokens", "version_read",
)  # fmt: skip


def differences(first: Run, second: Run) -> list[str]:
    """One line per thing that is not the same; empty when the runs are equal."""
    found: list[str] = []
    for name, keys in (("calls", CALL_KEYS), ("units", UNIT_KEYS), ("queries", QUERY_KEYS)):
        found += _compare(name, keys, getattr(first, name), getattr(second, name))
    sizes = [sorted({*zip(r.footprints["scope"], r.footprints["store"], r.footprints["at"],
                          strict=True)}) for r in (first, second)]  # fmt: skip
    if sizes[0] != sizes[1]:
        found.append("footprints: not the same stores were measured")
    return found


def _compare(
    name: str, keys: tuple[str, ...], one: pd.DataFrame, two: pd.DataFrame
) -> Iterator[str]:
    rows = [_live(table, keys) for table in (one, two)]
    for row, count in (rows[0] - rows[1]).items():
        yield f"{name}: {count} only in the first: {_shown(keys, row)}"
    for row, count in (rows[1] - rows[0]).items():
        yield f"{name}: {count} only in the second: {_shown(keys, row)}"


def _live(table: pd.DataFrame, keys: tuple[str, ...]) -> Counter[tuple[Any, ...]]:
    if "bucket" in table:
        # Set-up is done once per life of a worker, so a resumed run has more of it.
        table = table[~table["bucket"].isin(["wasted", "setup"])]
    records = table[list(keys)].astype(object).where(table[list(keys)].notna(), None)
    return Counter(tuple(row) for row in records.itertuples(index=False, name=None))


def _shown(keys: tuple[str, ...], row: tuple[Any, ...]) -> str:
    return ", ".join(f"{k}={v!r:.60}" for k, v in zip(keys, row, strict=True) if v is not None)
