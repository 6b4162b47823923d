"""LoCoMo's traps, on a small file of the same form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentmem.errors import DataError, UsageError
from agentmem.workloads import History, WorkloadSpec, build


def turn(key: str, speaker: str, text: str, **more: str) -> dict[str, str]:
    return {"dia_id": key, "speaker": speaker, "text": text, **more}


def qa(question: str, category: int, evidence: list[str], **more: Any) -> dict[str, Any]:
    return {"question": question, "category": category, "evidence": evidence, **more}


SAMPLE = {
    "sample_id": "conv-1",
    "conversation": {
        "speaker_a": "Ann",
        "speaker_b": "Bob",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            turn("D1:1", "Ann", "Hello"),
            turn("D1:2", "Bob", "Look", blip_caption="a red kite", query="secret kite gold"),
        ],
        "session_2_date_time": "12:05 am on 9 May, 2023",
        "session_2": [turn("D2:1", "Ann", "Later"), turn("D2:2", "Bob", "Yes")],
        "session_3_date_time": "1:00 pm on 10 May, 2023",
    },
    "qa": [
        qa("joined ids?", 1, ["D1:1; D2:1"], answer="x"),
        qa("zero-padded?", 2, ["D2:02"], answer=2022),
        qa("stray colon, nothing?", 4, ["D:1:2", "D", "D9:9"], answer="y"),
        qa("opinion?", 3, ["D1:2"], answer="Likely no; since it rained"),
        qa("asked twice?", 4, ["D1:1"], answer="z"),
        qa("asked twice?", 4, ["D1:1"], answer="z"),
        qa("never said?", 5, ["D1:2"], adversarial_answer="trap"),
        qa("wrongly cited?", 4, ["D1:1"], answer="w"),
        qa("wrong gold?", 4, ["D1:1"], answer="bad"),
    ],
}
AUDIT = [
    {"question_id": "locomo_0_qa7", "error_type": "WRONG_CITATION", "correct_evidence": ["D2:2"]},
    {"question_id": "locomo_0_qa8", "error_type": "HALLUCINATION", "correct_evidence": []},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "locomo10.json").write_text(json.dumps([SAMPLE]))
    (tmp_path / "audit_errors.json").write_text(json.dumps(AUDIT))
    return tmp_path


def load(folder: Path, **more: Any) -> tuple[History, dict[str, int]]:
    workload = build(WorkloadSpec("locomo", path=str(folder), **more))
    return workload.histories[0], workload.sources["counts"]


def test_golds_and_evidence_are_mended(folder: Path) -> None:
    history, counts = load(folder)
    found = {q.text: q for q in history.questions}
    assert found["joined ids?"].evidence == ("D1:1", "D2:1")
    assert found["zero-padded?"].evidence == ("D2:2",)
    assert found["zero-padded?"].golds == ("2022",)
    assert found["stray colon, nothing?"].evidence == ("D1:2",)
    assert found["opinion?"].golds == ("Likely no",)
    assert found["never said?"].abstain
    assert found["never said?"].golds == found["never said?"].evidence == ()
    assert counts == {
        "duplicate_questions_dropped": 1,
        "evidence_ids_dropped": 2,
        "evidence_ids_mended": 3,
    }


def test_sessions_without_turns_do_not_exist(folder: Path) -> None:
    history, _ = load(folder)
    assert [u.unit_id for u in history.units] == ["conv-1/session-1", "conv-1/session-2"]
    assert [u.at for u in history.units] == ["2023-05-08T13:56:00", "2023-05-09T00:05:00"]


def test_captions_are_kept_or_left_out_and_queries_never_seen(folder: Path) -> None:
    with_caption, without = (load(folder, captions=c)[0].units[0].text for c in (True, False))
    assert "Bob: Look (shares a picture: a red kite)" in with_caption
    assert without.endswith("Bob: Look")
    assert "secret" not in with_caption


def test_audit_drops_wrong_golds_and_corrects_citations(folder: Path) -> None:
    history, counts = load(folder, drop_wrong_golds=True)
    found = {q.text: q for q in history.questions}
    assert "wrong gold?" not in found
    assert found["wrongly cited?"].evidence == ("D2:2",)
    assert found["wrongly cited?"].evidence_texts == ("[9 May 2023, 00:05] Bob: Yes",)
    assert counts["wrong_golds_dropped"] == 1


def test_audit_missing_is_a_clear_error(folder: Path) -> None:
    (folder / "audit_errors.json").unlink()
    with pytest.raises(DataError, match="drop_wrong_golds reads the audit"):
        load(folder, drop_wrong_golds=True)


def test_first_sessions_only(folder: Path) -> None:
    history, counts = load(folder, sessions=1)
    assert len(history.units) == 1
    assert {q.text for q in history.questions} == {
        "stray colon, nothing?",
        "opinion?",
        "asked twice?",
        "never said?",
        "wrongly cited?",
        "wrong gold?",
    }
    assert counts["questions_outside_the_sessions"] == 2


def test_unknown_sample_and_category_name_the_nearest(folder: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'conv-1'"):
        load(folder, samples=("conv-11",))
    with pytest.raises(UsageError, match="did you mean 'temporal'"):
        load(folder, categories=("temporel",))
