"""LoCoMo as published, where the data set is on this machine (AGENTMEM_DATA)."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from agentmem.workloads import Workload, WorkloadSpec, build

DATA = os.environ.get("AGENTMEM_DATA", "")
pytestmark = pytest.mark.skipif(
    not (Path(DATA) / "locomo" / "locomo10.json").is_file(),
    reason="needs AGENTMEM_DATA with locomo/locomo10.json",
)


@pytest.fixture(scope="module")
def whole() -> Workload:
    return build(WorkloadSpec("locomo", unit="turn"))


def test_counts_of_the_published_set(whole: Workload) -> None:
    assert len(whole.histories) == 10
    assert sum(len(h.units) for h in whole.histories) == 5882
    by_category = Counter(q.category for h in whole.histories for q in h.questions)
    # Published 282/321/96/841/446, less twelve asked twice (one of them as adversarial).
    assert by_category == {
        "multi-hop": 282,
        "temporal": 321,
        "open-domain": 96,
        "single-hop": 830,
        "adversarial": 445,
    }
    assert whole.sources["counts"] == {
        "duplicate_questions_dropped": 12,
        "evidence_ids_dropped": 3,
        "evidence_ids_mended": 6,
    }


def test_sessions_are_the_ones_that_exist() -> None:
    sessions = build(WorkloadSpec("locomo"))
    assert sum(len(h.units) for h in sessions.histories) == 272
    assert sessions.histories[0].units[0].at == "2023-05-08T13:56:00"
    assert sessions.histories[0].units[0].text.startswith("[8 May 2023, 13:56]\nCaroline: ")


@pytest.mark.parametrize(("sample", "expected"), [("conv-30", 77), ("conv-26", 137)])
def test_questions_left_when_wrong_golds_are_dropped(sample: str, expected: int) -> None:
    spec = WorkloadSpec(
        "locomo",
        samples=(sample,),
        drop_wrong_golds=True,
        categories=("multi-hop", "temporal", "open-domain", "single-hop"),
    )
    assert len(build(spec).histories[0].questions) == expected


def test_first_sessions_keep_only_their_own_questions() -> None:
    spec = WorkloadSpec("locomo", unit="turn", samples=("conv-30",), sessions=3, questions=10)
    (history,) = build(spec).histories
    present = {turn.source_id for unit in history.units for turn in unit.turns}
    assert {i.split(":")[0] for i in present} == {"D1", "D2", "D3"}
    assert len(history.questions) == 10
    for question in history.questions:
        assert present.issuperset(question.evidence)
        assert question.abstain == (question.category == "adversarial")
        assert bool(question.evidence) != question.abstain


def test_no_image_query_reaches_a_system(whole: Workload) -> None:
    import json

    samples = json.loads((Path(DATA) / "locomo" / "locomo10.json").read_text())
    talk = samples[0]["conversation"]
    queries = [
        (turn["dia_id"], turn["query"])
        for key, value in talk.items()
        if isinstance(value, list)
        for turn in value
        if turn.get("query") and turn["query"] not in turn["text"] + turn.get("blip_caption", "")
    ]
    assert len(queries) > 20
    texts = {unit.turns[0].source_id: unit.text for unit in whole.histories[0].units}
    assert [i for i, query in queries if query in texts[i]] == []


def test_every_gold_is_text_and_evidence_resolves(whole: Workload) -> None:
    for history in whole.histories:
        known = {turn.source_id for unit in history.units for turn in unit.turns}
        for question in history.questions:
            assert all(isinstance(gold, str) and gold for gold in question.golds)
            assert known.issuperset(question.evidence)
            assert len(question.evidence_texts) == len(question.evidence)
    years = [q for h in whole.histories for q in h.questions if q.golds == ("2022",)]
    assert years, "whole-number golds become text"
