"""A comparison as JSON, for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from agentmem.analysis.compare import Comparison, letter
from agentmem.analysis.compare_rules import Outcome

JSON_FORMAT = 1


def as_json(comparison: Comparison, outcomes: Sequence[Outcome]) -> str:
    """One object: sides, what differs, rows, conditions. Infinite changes are null."""
    options = asdict(comparison.options) | {"across": sorted(comparison.options.across)}
    value = {
        "format": JSON_FORMAT,
        "sides": {
            letter(i): [{"run": run.name, "folder": str(run.folder)} for run in side.runs]
            for i, side in enumerate(comparison.sides)
        },
        "options": options,
        "differs": {
            against: [asdict(f) | {"blocks": sorted(f.blocks)} for f in facts]
            for against, facts in comparison.facts.items()
        },
        "rows": [_finite(line.as_dict()) for line in comparison.lines],
        "conditions": [_condition(o) for o in outcomes],
    }
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def _condition(found: Outcome) -> dict[str, Any]:
    return {
        "text": found.rule.text,
        "fired": [f"{x.against}:{x.path}" for x in found.fired],
        "undecided": [f"{x.against}:{x.path}" for x in found.undecided],
        "rows": found.asked,
    }
