"""Tables of the write path: amplification, bytes, cost per unit and question."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from agentmem.analysis.load import Run
from agentmem.analysis.writepath import write_path
from agentmem.report import format as fmt
from agentmem.report.sheet import Column, Sheet, column, sheet

Runs = Sequence[tuple[str, Run]]
NAME = column("system", "title", fmt.text)


def _times(value: Any) -> str:
    """A ratio, as in 11.2 ×."""
    known = fmt.known(value)
    return fmt.UNKNOWN if known is None else f"{fmt.short(known)} ×"


def _at_least(heading: str, key: str, form: Any) -> Column:
    """A figure made of token sums; "≥" when some attempts did not report theirs."""
    return Column(heading, lambda r: ("≥ " if r["tokens_missing"] else "") + form(r[key]))


def _disk(row: dict[str, Any]) -> str:
    return f"{fmt.size(row['disk_bytes'])} ({fmt.size(row['disk_at_open_bytes'])})"


def amplification(runs: Runs) -> Sheet:
    return sheet(
        "write_path",
        "What writing costs",
        "Construction, measured calls only, per token of source as the workload's named tokenizer "
        "counts and per 1,000 characters, which no tokenizer changes. On disk: after "
        "construction, in brackets the store as it was opened. Written: what the worker handed to "
        "storage while constructing, not the harness's snapshots; not known where its counters "
        "cannot be read, and for short constructions that questions overlapped.",
        runs,
        write_path,
        [
            NAME,
            column("units", "units"),
            column("source tokens", "source_tokens"),
            _at_least("LLM tokens per source token", "llm_per_source_token", _times),
            _at_least("embedded per source token", "embed_per_source_token", _times),
            _at_least("LLM tokens per 1,000 chars", "llm_per_1000_chars", fmt.short),
            column("time per 1,000 chars", "s_per_1000_chars", fmt.seconds),
            Column("on disk", _disk),
            column("per source byte", "disk_per_source_byte", _times),
            column("written", "written_bytes", fmt.size),
            column("per source byte", "written_per_source_byte", _times),
        ],
    )


def amortised(runs: Runs) -> Sheet:
    return sheet(
        "amortised",
        "What a unit and a question cost",
        "“Build share” spreads the construction over the questions asked; with more questions it "
        "shrinks. “Pays after”: questions until construction and answers cost no more than "
        "handing over the whole history each time (the pass-through system of this run), at this "
        "history's length; “never” where each question costs more. Findable: seconds until a "
        "unit can be retrieved, as the system says, or “≤” until its construct and the closing "
        "flush returned.",
        runs,
        write_path,
        [
            NAME,
            column("time per unit", "s_per_unit", fmt.seconds),
            _at_least("LLM tokens per unit", "llm_per_unit", fmt.count),
            Column("findable: p50 / p95", _findable),
            column("build share per question", "build_s_per_question", fmt.seconds),
            column("answer per question", "answer_s_per_question", fmt.seconds),
            column("together", "amortised_s_per_question", fmt.seconds),
            Column("pays after: time", lambda r: _questions(r["pays_after_s"])),
            Column("pays after: LLM tokens", lambda r: _questions(r["pays_after_tokens"])),
        ],
    )


def _findable(row: dict[str, Any]) -> str:
    sign = "" if row["visible_told"] == row["units"] else "≤ "
    known = fmt.known(row["visible_p50_s"]) is not None
    said = f"{fmt.seconds(row['visible_p50_s'])} / {fmt.seconds(row['visible_p95_s'])}"
    return (sign if known else "") + said


def _questions(value: Any) -> str:
    known = fmt.known(value)
    if known is None:
        return fmt.UNKNOWN
    if math.isinf(known):
        return "never"
    return fmt.plural(math.ceil(known), "question") if known > 0 else "at once"
