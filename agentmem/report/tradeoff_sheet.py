"""The table behind F2: accuracy beside query latency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentmem.analysis.compare_tradeoff import tradeoff
from agentmem.analysis.load import Run
from agentmem.report import format as fmt
from agentmem.report.sheet import Column, Sheet, column, sheet


def _span(heading: str, value: str, low: str, high: str, form: Any) -> Column:
    def cell(row: dict[str, Any]) -> str:
        around = fmt.band(row[low], row[high], form)
        return f"{form(row[value])} ({around})" if around else str(form(row[value]))

    return Column(heading, cell)


def tradeoff_sheet(runs: Sequence[tuple[str, Run]]) -> Sheet:
    return sheet(
        "f2_tradeoff",
        "Accuracy and query latency",
        "In brackets: 95 % intervals; of the share by Wilson, or over histories where there are "
        "enough of them; of the mean time by resampling. Failed questions are asked and not "
        "right, and have no time.",
        runs,
        tradeoff,
        [
            column("system", "title", fmt.text),
            column("questions", "questions"),
            column("timed", "timed"),
            _span("right", "accuracy", "accuracy_low", "accuracy_high", fmt.percent),
            _span(
                "question to answer", "latency_s", "latency_low_s", "latency_high_s", fmt.seconds
            ),
        ],
    )
