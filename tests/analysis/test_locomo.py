"""LoCoMo's score on cases worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import agentmem
from agentmem.analysis.locomo import locomo_means, locomo_score, stem_f1, stems
from agentmem.records import Query, Row
from agentmem.report.sheets import quality
from tests.analysis.build_run import HOSTILE, write_run
from tests.analysis.synth import manifest


def test_words_are_compared_by_their_stems() -> None:
    assert stems("The painting, and a Painter's paintings!") == ["paint", "painter", "paint"]
    assert stems("running relational") == ["run", "relat"]


@pytest.mark.parametrize(
    ("category", "answer", "gold", "expected"),
    [
        # "7 may 2023" in five words without the article: 2 * 3 / (5 + 3).
        ("temporal", "On the 7 May 2023, Sunday", "7 May 2023", 0.75),
        ("single-hop", "She paints", "painting", 2 / 3),
        ("single-hop", "", "painting", 0.0),
        ("single-hop", "the", "a", 0.0),
        # Each part of the gold against the best part of the answer: (1 + 1 + 0) / 3.
        ("multi-hop", "swims, paints", "painting, swimming, pottery", 2 / 3),
        ("open-domain", "Liberal", "Liberal; she said so in May", 1.0),
        ("single-hop", "Liberal", "Liberal; said", 2 / 3),
        ("adversarial", "That is Not mentioned anywhere.", "a trap", 1.0),
        ("adversarial", "No information available", "a trap", 1.0),
        ("adversarial", "a trap", "a trap", 0.0),
    ],
)
def test_score(category: str, answer: str, gold: str, expected: float) -> None:
    assert locomo_score(category, answer, gold) == pytest.approx(expected)


def test_order_does_not_matter_but_repetition_does() -> None:
    assert stem_f1("blue red", "red blue") == 1.0
    assert stem_f1("red red", "red") == pytest.approx(2 / 3)


def test_only_locomo_has_the_column(tmp_path: Path) -> None:
    def single_hop(rows: list[Row]) -> list[Row]:
        return [
            replace(r, category="single-hop", answer=r.answer and r.answer.removesuffix(HOSTILE))
            if isinstance(r, Query)
            else r
            for r in rows
        ]

    plain = agentmem.load(write_run(tmp_path / "plain"))
    assert locomo_means(plain) is None
    assert "LoCoMo F1" not in [c.heading for c in quality([("r", plain)]).columns]
    changes = {"workload": manifest()["workload"] | {"name": "locomo"}}
    run = agentmem.load(write_run(tmp_path / "locomo", single_hop, changes))
    sheet = quality([("r", run)])
    place = [c.heading for c in sheet.columns].index("LoCoMo F1")
    # "She lives in Lyon n." against "Lyon n" is 2 * 2 / (5 + 2); Turin for Lyon shares the number.
    wrong, right = 2 / 7, 4 / 7
    nine, failed = [right] + [wrong] * 7, 0.0
    # The tenth question has no gold here, and one of Mem0's has no answer.
    assert sheet.frame.set_index("system").loc["mem0", "locomo_f1"] == pytest.approx(
        (sum(nine) + failed) / 10
    )
    assert sheet.rows[0][place] not in ("–", "0")
