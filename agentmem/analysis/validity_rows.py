"""What stands behind each system's figures: complete or not, its lane, its caps, whose truth."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from agentmem.analysis.breakdown import calls_by_kind
from agentmem.analysis.load import REFERENCES, Run
from agentmem.analysis.tables import title

HARNESS, NATIVE, BOTH = "harness", "system's own loop", "both"
"""Who wrote the answers: figures of different lanes are not compared."""


def validity_rows(run: Run) -> pd.DataFrame:
    """One row per system: what a reader must know before comparing its row with another's."""
    rows, caps = [], capped(run)
    for system in run.systems:
        info = (run.manifest.get("systems") or {}).get(system) or {}
        queries = run.queries[run.queries["system"] == system]
        rows.append(
            {
                "system": system,
                "title": title(run, system),
                "completeness": completeness(run, system),
                "fidelity": info.get("fidelity"),
                "lane": lane(run, system),
                "cap_bound": caps.get(title(run, system)),
                "context_cut": int((queries["cut_tokens"] > 0).sum()),
                "setup_s": _setup(run, system),
                "timeouts": int(_timeouts(run, system)),
            }
            | truth(run, system)
        )
    return pd.DataFrame(rows)


def stored_nothing(run: Run, system: str) -> bool:
    """Built, but without a single record, though the system is one that keeps records."""
    units = run.units[run.units["system"] == system]
    info = (run.manifest.get("systems") or {}).get(system) or {}
    if not len(units) or not info.get("stores_records", True):
        return False
    return not int(units["added"].sum() + units["updated"].sum())


def completeness(run: Run, system: str) -> str | None:
    """In words: complete, or what is missing. None for a reference, which builds nothing."""
    units = run.units[run.units["system"] == system]
    queries = run.queries[run.queries["system"] == system]
    if system in REFERENCES and not len(units):
        return None
    lost = int(units["lost"].sum()) if len(units) else 0
    said = []
    if not len(units):
        said.append("nothing was built")
    elif stored_nothing(run, system):
        said.append("stored nothing" + (f": all {counted(lost, 'fact')} lost" if lost else ""))
    elif lost:
        said.append(f"{counted(lost, 'fact')} lost")
    for table, noun in ((units, "unit"), (queries, "question")):
        failed = int((table["status"] != "ok").sum())
        if failed:
            said.append(f"{failed} of {counted(len(table), noun)} failed")
    return "; ".join(said) or "complete"


def counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def lane(run: Run, system: str) -> str | None:
    """Who answered; None where nobody did."""
    native = run.queries[run.queries["system"] == system]["native_answer"].astype(bool)
    if not len(native):
        return None
    if native.all():
        return NATIVE
    return BOTH if native.any() else HARNESS


def capped(run: Run) -> dict[str, str]:
    """By system: its cap-bound kinds with the share of replies that ended at the token cap, or
    "none". A system that called no LLM is left out."""
    kinds = calls_by_kind(run)
    if kinds.empty:
        return {}
    kinds = kinds[kinds["cap_share"].notna()]
    return {str(name): _bound(mine) for name, mine in kinds.groupby("system", sort=False)}


def _bound(kinds: pd.DataFrame) -> str:
    bound = kinds[kinds["cap_bound"].astype(bool)]
    parts = (f"{k} {100 * s:.0f} %" for k, s in zip(bound["kind"], bound["cap_share"], strict=True))
    return ", ".join(parts) or "none"


def _setup(run: Run, system: str) -> float | None:
    """Seconds of imports and server starts, kept out of every phase; None where none was seen."""
    chosen = run.phases["system"].eq(system) & run.phases["bucket"].eq("setup")
    seconds = run.phases[chosen]["wall_s"]
    return float(seconds.sum()) if len(seconds) else None


def _timeouts(run: Run, system: str) -> int:
    return int((run.failures["system"].eq(system) & run.failures["kind"].eq("timeout")).sum())


TRUTHS = (("input", "uncached_tokens", "cached_tokens"), ("output", "generated_tokens"))
"""Engine fields that add up to what a server's usage calls input and output tokens."""


def truth(run: Run, system: str) -> dict[str, Any]:
    """The gateway's count of tokens (the server's usage) beside the engine's own and ours.

    Sums are over the calls for which both sides are known; `engine_calls` says how many those are.
    """
    calls = run.calls[run.calls["system"].eq(system) & ~run.calls["embeds"] & run.calls["ok"]]
    columns: dict[str, Any] = {"chat_calls": len(calls)}
    told = [_told(c, e) for c, e in zip(calls.to_dict("records"), calls["engine"], strict=True)]
    known = [pair for pair in told if pair is not None]
    columns["engine_calls"] = len(known)
    columns["usage_tokens"] = sum(u for u, _ in known) if known else None
    columns["engine_tokens"] = sum(e for _, e in known) if known else None
    columns["engine_mismatch"] = sum(u != e for u, e in known) if known else None
    both = calls[calls["own_output_tokens"].notna() & calls["output_tokens"].notna()]
    columns["usage_output"] = int(both["output_tokens"].sum()) if len(both) else None
    columns["own_output"] = int(both["own_output_tokens"].sum()) if len(both) else None
    columns["step_share_s"] = _known_total(calls["engine_share_s"])
    return columns


def _told(call: dict[Any, Any], engine: Any) -> tuple[int, int] | None:
    """Tokens in and out by the server's usage and by the engine; None where one does not say."""
    if not isinstance(engine, dict) or pd.isna(call["input_tokens"] + call["output_tokens"]):
        return None
    parts = [engine.get(name) for _, *names in TRUTHS for name in names]
    known = [int(part) for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return int(call["input_tokens"] + call["output_tokens"]), sum(known)


def _known_total(values: Iterable[Any]) -> float | None:
    known = [float(v) for v in values if not pd.isna(v)]
    return sum(known) if known else None
