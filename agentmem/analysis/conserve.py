"""The proof that nothing was lost or counted twice: phases against the journal's own rows (R11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from agentmem.analysis.attribute import BILLED, OUTSIDE
from agentmem.records import PHASES, Call, CallBegin, Row


@dataclass(frozen=True, slots=True)
class Bill:
    """What the journal's call rows add up to, counted without any frame or grouping."""

    attempts: int
    input_tokens: int
    output_tokens: int
    embed_tokens: int
    unknown: int
    """Attempts whose token counts are unknown in part."""


def journal_bill(rows: Sequence[Row]) -> Bill:
    """One pass over the rows as written; a call that only began counts as one unknown attempt."""
    calls = [row for row in rows if isinstance(row, Call)]
    ended = {call.call_id for call in calls}
    begun = [r for r in rows if isinstance(r, CallBegin) and r.call_id not in ended]
    embeds = [c for c in calls if c.endpoint == "embedding"]
    chats = [c for c in calls if c.endpoint not in ("embedding", "other")]
    silent = sum(c.input_tokens is None or c.output_tokens is None for c in chats)
    silent += sum(c.input_tokens is None for c in embeds)
    return Bill(
        attempts=len(calls) + len(begun),
        input_tokens=sum(c.input_tokens or 0 for c in chats),
        output_tokens=sum(c.output_tokens or 0 for c in chats),
        embed_tokens=sum(c.input_tokens or 0 for c in embeds),
        unknown=silent + sum(b.endpoint != "other" for b in begun),
    )


@dataclass(frozen=True, slots=True)
class Conservation:
    """Phase sums beside totals, per quantity: `parts` in print order, `total` from the journal."""

    quantity: str
    parts: tuple[tuple[str, int], ...]
    total: int

    @property
    def holds(self) -> bool:
        return sum(value for _, value in self.parts) == self.total

    def __str__(self) -> str:
        spelled = " + ".join(f"{name} {value:,}" for name, value in self.parts)
        relation = "=" if self.holds else "does NOT add up to"
        return f"{self.quantity}: {spelled} {relation} {self.total:,}"


QUANTITIES = {
    "attempts": "calls",
    "input_tokens": "input tokens",
    "output_tokens": "output tokens",
    "embed_tokens": "embedding tokens",
}


def conservation(phases: pd.DataFrame, journal: Sequence[Row]) -> tuple[Conservation, ...]:
    """For calls and each kind of token: every phase and bucket, and the journal's total."""
    bill = journal_bill(journal)
    return tuple(
        Conservation(label, _parts(phases, column), getattr(bill, column))
        for column, label in QUANTITIES.items()
    )


def _parts(phases: pd.DataFrame, column: str) -> tuple[tuple[str, int], ...]:
    """The three phases always, then every other bucket; unattributed is always printed (R7)."""
    values = pd.to_numeric(phases[column]).fillna(0)
    measured = phases["bucket"] == "measured"
    parts: dict[str, float] = {p: values[measured & (phases["phase"] == p)].sum() for p in PHASES}
    parts["no phase"] = values[measured & (phases["phase"] == OUTSIDE)].sum()
    for bucket in ("setup", "harness", "judge", "wasted", "unattributed"):
        parts[bucket] = values[phases["bucket"] == bucket].sum()
    always = {*PHASES, "unattributed"}
    return tuple((name, int(v)) for name, v in parts.items() if v or name in always)


def unattributed(phases: pd.DataFrame) -> dict[str, int]:
    """Calls and tokens that fell into no phase of any system."""
    rows = phases[phases["bucket"] == "unattributed"]
    counts = {c: int(pd.to_numeric(rows[c]).fillna(0).sum()) for c in ("attempts", *BILLED)}
    return counts | {"systems": int(rows["system"].nunique())}


def unattributed_line(phases: pd.DataFrame) -> str:
    found = unattributed(phases)
    tokens = sum(found[c] for c in BILLED)
    if not found["attempts"]:
        return "unattributed: 0 calls, 0 tokens"
    return f"unattributed: {found['attempts']:,} calls, {tokens:,} tokens"
