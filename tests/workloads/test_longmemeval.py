"""LongMemEval, published form and slice form."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agentmem.errors import DataError
from agentmem.workloads import WorkloadSpec, build

PUBLISHED = [
    {
        "question_id": "q1",
        "question_type": "single-session-user",
        "question": "What did I plant?",
        "answer": 3,
        "question_date": "2023/05/30 (Tue) 23:40",
        "haystack_session_ids": ["a", "b", "c"],
        "haystack_dates": ["2023/05/01 (Mon) 10:00"] * 3,
        "haystack_sessions": [
            [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "  "}],
            [{"role": "user", "content": "more"}],
            [{"role": "user", "content": "3 trees", "has_answer": True}],
        ],
        "answer_session_ids": ["c"],
    },
    {
        "question_id": "q2_abs",
        "question_type": "single-session-user",
        "question": "What did I sell?",
        "answer": "You did not say.",
        "haystack_session_ids": ["a"],
        "haystack_dates": ["2023/05/01 (Mon) 10:00"],
        "haystack_sessions": [[{"role": "user", "content": "hi"}]],
        "answer_session_ids": [],
    },
]
SLICE = {
    "queries": [
        {
            "id": "q1",
            "query": "What?",
            "gold": ["q1::g"],
            "haystack": ["q1::a", "q1::g"],
            "question_type": "t",
            "answer": "Teal",
        },
        {
            "id": "q2",
            "query": "?",
            "gold": [],
            "haystack": ["gone"],
            "question_type": "t",
            "answer": "x",
        },
    ],
    "documents": [
        {"id": "q1::a", "text": "assistant: hello\nuser: a\nb\nassistant: c"},
        {"id": "q1::g", "text": "user: it is teal\nassistant: nice"},
    ],
}


def write(folder: Path, data: object) -> str:
    path = folder / "longmemeval_s.json"
    path.write_text(json.dumps(data))
    return str(path)


def test_published_form(tmp_path: Path) -> None:
    first, second = build(WorkloadSpec("longmemeval", path=write(tmp_path, PUBLISHED))).histories
    (question,) = first.questions
    assert question.golds == ("3",)
    assert question.evidence == ("3:c:t1",)
    assert question.evidence_texts == ("[1 May 2023, 10:00] User: 3 trees",)
    assert question.at == "2023-05-30T23:40:00"
    assert [len(u.turns) for u in first.units] == [1, 1, 1], "blank turns are left out"
    assert second.questions[0].abstain
    assert second.questions[0].golds == ()


def test_fewer_sessions_keep_the_evidence(tmp_path: Path) -> None:
    spec = WorkloadSpec("longmemeval", path=write(tmp_path, PUBLISHED), sessions=2, samples=("q1",))
    (history,) = build(spec).histories
    assert [u.unit_id for u in history.units] == ["q1/1:a", "q1/3:c"]


def test_slice_form(tmp_path: Path) -> None:
    workload = build(WorkloadSpec("longmemeval", path=write(tmp_path, SLICE), unit="turn"))
    (history,) = workload.histories
    assert [(u.turns[0].role, u.turns[0].text) for u in history.units] == [
        ("assistant", "hello"),
        ("user", "a\nb"),
        ("assistant", "c"),
        ("user", "it is teal"),
        ("assistant", "nice"),
    ]
    assert history.questions[0].evidence == ("q1::g:t1",)
    assert workload.sources["counts"]["questions_with_incomplete_history_dropped"] == 1


def test_another_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not LongMemEval"):
        build(WorkloadSpec("longmemeval", path=write(tmp_path, {"a": 1})))


@pytest.mark.skipif(
    not (Path(os.environ.get("AGENTMEM_DATA", "")) / "longmemeval").is_dir(),
    reason="needs AGENTMEM_DATA with longmemeval/",
)
def test_slice_as_given() -> None:
    workload = build(WorkloadSpec("longmemeval"))
    assert [len(h.units) for h in workload.histories] == [53, 45, 50, 56, 49]
    assert all(h.questions[0].evidence for h in workload.histories)
    assert all(90_000 < h.source_tokens < 150_000 for h in workload.histories)
