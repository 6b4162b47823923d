"""Order by energy: modelled joules are a band, and bands that overlap have no order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentmem.analysis.energy import MODELLED
from agentmem.analysis.load import Run
from agentmem.analysis.tables import end_to_end

NO_ORDER = "bands overlap: no order shown"


def energy_order(run: Run) -> str | None:
    """Which systems used more than which, as far as bands lie apart; None without a band."""
    table = end_to_end(run)
    if table.empty:
        return None
    own = table[~table["reference"].astype(bool) & table["energy_source"].eq(MODELLED)]
    rows: list[dict[str, Any]] = own.to_dict("records")  # type: ignore[assignment]
    if len(rows) < 2 or own["energy_low_j"].isna().any():
        return None
    parts = [
        f"{row['title']} above {_names(below)}" for row in rows if (below := _below(row, rows))
    ]
    apart = sum(len(_below(row, rows)) for row in rows)
    if not parts:
        return NO_ORDER
    whole = apart == len(rows) * (len(rows) - 1) // 2
    return "; ".join(parts) + ("" if whole else f"; other {NO_ORDER}")


def _below(row: dict[str, Any], rows: Sequence[dict[str, Any]]) -> list[str]:
    """Titles of systems whose whole band lies below this one's."""
    return [str(r["title"]) for r in rows if r["energy_high_j"] < row["energy_low_j"]]


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
