"""The tables of a comparison: every row with its verdict, and what differs between the sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from agentmem.analysis.compare import Comparison, Line
from agentmem.analysis.compare_rules import Outcome
from agentmem.report import compare_words as words
from agentmem.report.sheet import REFERENCE_NAMES, Column, Sheet

Cell = Callable[[Line], str]


def _left_out(line: Line) -> str:
    return str(line.judged.left_out) if line.judged.left_out else ""


def verdicts(comparison: Comparison, against: str) -> Sheet:
    """All rows of one side against A."""
    lines = [x for x in comparison.lines if x.against == against]
    columns: list[tuple[str, Cell, bool]] = [
        ("system", lambda x: x.title, False),
        ("phase", lambda x: x.metric.room, False),
        ("quantity", lambda x: x.metric.name, False),
        ("A", lambda x: words.amount(x, "a"), True),
        (against, lambda x: words.amount(x, "b"), True),
        ("change", words.change, True),
        ("interval, %", words.span, True),
        ("margin", words.margin, True),
        ("pairs", lambda x: str(x.judged.pairs), True),
        ("left out", _left_out, True),
        ("verdict", lambda x: x.judged.verdict, False),
        ("why", lambda x: x.judged.note, False),
    ]
    return Sheet(
        f"compare_{against}",
        f"{against} against A",
        "Construction: sums over the pairs; all else: means per question. Pairs are units and "
        "questions that both sides did; failed ones are left out and counted. "
        + words.terms(comparison),
        pd.DataFrame([x.as_dict() for x in lines]),
        tuple(Column(head, lambda row: "", number) for head, _, number in columns),
        tuple(tuple(cell(x) for _, cell, _ in columns) for x in lines),
        tuple(x.system in REFERENCE_NAMES for x in lines),
        tuple(x.system for x in lines),
    )


def differs(comparison: Comparison) -> Sheet:
    """What the sides do not have in common."""
    facts = [(against, f) for against, found in comparison.facts.items() for f in found]
    rows: list[dict[str, Any]] = [
        {
            "against": against,
            "what": f.key + (f" ({f.where})" if f.where else ""),
            "a": f.a,
            "b": f.b,
            "forbids": ", ".join(sorted(f.blocks)),
        }
        for against, f in facts
    ]
    return _plain(
        "compare_differs",
        "What differs",
        "The last column names the groups of quantities that may not be compared because of it; "
        "most settings forbid nothing, for they may be the very thing that was changed.",
        ("against", "what", "a", "b", "forbids"),
        rows,
    )


def conditions(outcomes: Sequence[Outcome]) -> Sheet:
    """What became of the conditions."""
    rows: list[dict[str, Any]] = [
        {
            "condition": o.rule.text,
            "outcome": "FIRED"
            if o.fired
            else "not decided"
            if o.undecided or not o.asked
            else "passed",
            "rows": ", ".join(f"{x.path} ({x.against})" for x in o.fired),
        }
        for o in outcomes
    ]
    heads = ("condition", "outcome", "rows")
    return _plain("compare_conditions", "Conditions", "Given by --fail-on.", heads, rows)


def _plain(
    key: str, heading: str, note: str, heads: tuple[str, ...], rows: Sequence[dict[str, Any]]
) -> Sheet:
    return Sheet(
        key,
        heading,
        note,
        pd.DataFrame(rows, columns=list(heads)),
        tuple(Column(h, lambda row: "", False) for h in heads),
        tuple(tuple(str(row[h]) for h in heads) for row in rows),
        (False,) * len(rows),
        (None,) * len(rows),
    )
