"""The tables of a report: taxonomy (T1) and end-to-end cost (T3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from agentmem.analysis.attribute import known_sum
from agentmem.analysis.energy import add_up
from agentmem.analysis.load import REFERENCES, Run
from agentmem.analysis.stats import wilson

TAXONOMY = {
    "paradigm": "paradigm",
    "agentic": "agent decides",
    "construction_llm": "LLM builds",
    "construction_embeds": "embeds on write",
    "structured_records": "structured records",
    "store": "store",
    "retrieval_llm": "LLM retrieves",
    "retrieval_flow": "retrieval flow",
    "mutability": "mutability",
}
"""Columns of T1 in print order: key in the manifest -> heading."""

BILL = ("measured", "harness")
"""Buckets that make up a system's own cost; set-up, waste and late calls are printed apart."""


REFERENCE_TITLES = dict(zip(REFERENCES, ("no memory", "oracle evidence"), strict=True))


def title(run: Run, system: str) -> str:
    """Name to print; reference rows say what they are."""
    info = run.manifest.get("systems", {}).get(system) or {}
    return str(info.get("title") or REFERENCE_TITLES.get(system, system))


def taxonomy(run: Run) -> pd.DataFrame:
    """T1: one row per system as its own description says; None where it says nothing."""
    rows = []
    for system in (s for s in run.systems if s not in REFERENCES):
        info = run.manifest.get("systems", {}).get(system) or {}
        facts = {"paradigm": info.get("paradigm")} | dict(info.get("taxonomy") or {})
        row: dict[str, Any] = {"system": title(run, system)}
        row |= {heading: facts.get(key) for key, heading in TAXONOMY.items()}
        rows.append(row | {"upstream": upstream(info), "fidelity": info.get("fidelity")})
    return pd.DataFrame(rows)


def upstream(info: dict[str, Any]) -> str | None:
    """Foreign package as `name version`, None for a built-in system."""
    found = info.get("upstream")
    if isinstance(found, dict):
        return " ".join(str(found[k]) for k in ("package", "version") if found.get(k)) or None
    return str(found) if found else None


def end_to_end(run: Run) -> pd.DataFrame:
    """T3: accuracy beside time, calls, tokens and energy of everything a system did."""
    return pd.DataFrame([_row(run, system) for system in run.systems])


def _row(run: Run, system: str) -> dict[str, Any]:
    mine = run.phases["system"].eq(system) & run.phases["bucket"].isin(BILL)
    row = (
        {"system": system, "title": title(run, system), "reference": system in REFERENCES}
        | quality(run.scores[run.scores["system"] == system])
        | _cost(run.phases[mine])
    )
    return row | joules_per_correct(row)


def quality(scores: pd.DataFrame) -> dict[str, Any]:
    """Accuracy over all questions asked, mean F1 over those that have a gold, recall, staleness."""
    asked, correct = len(scores), int(scores["correct"].sum())
    stale = scores["stale_answer"].dropna()
    low, high = wilson(correct, asked) or (None, None)
    return {
        "questions": asked,
        "correct": correct,
        "accuracy": correct / asked if asked else None,
        "accuracy_low": low,
        "accuracy_high": high,
        "f1": mean(scores["f1"]),
        "stale_share": float(stale.astype(bool).mean()) if len(stale) else None,
        "abstained_share": mean(scores["abstained"].astype("float64")),
        "recall_ids": mean(scores["recall_ids"]),
        "recall_text": mean(scores["recall_text"]),
    }


def by_category(run: Run) -> pd.DataFrame:
    """Quality of each system, with `right of asked` per question category."""
    rows = []
    for system in run.systems:
        scores = run.scores[run.scores["system"] == system]
        row = {"system": system, "title": title(run, system), "reference": system in REFERENCES}
        row |= quality(scores)
        for category, group in scores.groupby("category", sort=False):
            row[f"category: {category}"] = f"{int(group['correct'].sum())} of {len(group)}"
        rows.append(row)
    return pd.DataFrame(rows)


def mean(values: pd.Series[Any]) -> float | None:
    known = values.dropna()
    return float(known.mean()) if len(known) else None


def _cost(phases: pd.DataFrame) -> dict[str, Any]:
    tokens = ("input_tokens", "output_tokens", "embed_tokens")
    return {
        "wall_s": float(phases["wall_s"].sum()) if len(phases) else None,
        "chat_calls": int(phases["chat_attempts"].sum()),
        "embed_calls": int(phases["embed_attempts"].sum()),
        "failed_calls": int(phases["failed_attempts"].sum()),
        **{column: known_sum(phases[column]) for column in tokens},
        "tokens_missing": int(sum(phases[f"{column}_missing"].sum() for column in tokens)),
        "cpu_s": add_up(list(phases["cpu_s"])),
        **joules(phases),
    }


def joules(phases: pd.DataFrame) -> dict[str, Any]:
    """Energy of several phases if all come from one source, else unknown (R6)."""
    worked = phases[phases["windows"].astype(int) > 0]
    sources = set(worked["energy_source"])
    source = sources.pop() if len(sources) == 1 else "none"
    known = source != "none"
    band = source == "modelled"
    return {
        "energy_j": add_up(list(worked["energy_j"])) if known else None,
        "energy_low_j": add_up(list(worked["modelled_low_j"])) if band else None,
        "energy_high_j": add_up(list(worked["modelled_high_j"])) if band else None,
        "energy_source": source,
    }


def joules_per_correct(row: Mapping[Any, Any]) -> dict[str, float | None]:
    """Joules per correct answer; None when nothing was right, for then there is no such figure."""
    correct, names = row["correct"], ("", "_low", "_high")
    spent = {name: row[f"energy{name}_j"] for name in names}
    return {
        f"j_per_correct{name}": joules / correct if correct and joules is not None else None
        for name, joules in spent.items()
    }
