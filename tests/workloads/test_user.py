"""A user's own file: both forms read, every mistake named with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentmem.errors import DataError
from agentmem.workloads import Workload, WorkloadSpec, build

GOOD: dict[str, Any] = {
    "history": "mine",
    "user": "ann",
    "sessions": [
        {
            "id": "monday",
            "date": "2024-05-06T10:00",
            "turns": [
                {"speaker": "Ann", "text": "I bought a kayak.", "id": "k1"},
                {"speaker": "Assistant", "text": "Enjoy!"},
            ],
        },
        {"turns": [{"speaker": "Ann", "text": "Bye", "role": "user"}]},
    ],
    "questions": [
        {"question": "What did Ann buy?", "answer": "a kayak", "evidence": ["k1"], "stale": []},
        {"question": "Her shoe size?", "abstain": True},
    ],
}


def load(folder: Path, data: Any, name: str = "talk.json") -> Workload:
    path = folder / name
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return build(WorkloadSpec("conversation", path=str(path)))


def test_json_form(tmp_path: Path) -> None:
    (history,) = load(tmp_path, GOOD).histories
    assert (history.history, history.user) == ("mine", "ann")
    assert [u.unit_id for u in history.units] == ["mine/monday", "mine/s2"]
    assert [t.role for t in history.units[0].turns] == ["user", "assistant"]
    first, second = history.questions
    assert first.golds == ("a kayak",)
    assert first.evidence_texts == ("[6 May 2024, 10:00] Ann: I bought a kayak.",)
    assert second.abstain
    assert second.category == "abstain"


def test_jsonl_form_gives_the_same(tmp_path: Path) -> None:
    common = {"history": "mine", "user": "ann"}
    lines: list[dict[str, Any]] = []
    for number, session in enumerate(GOOD["sessions"], start=1):
        where = {"session": session.get("id", f"s{number}"), "date": session.get("date")}
        lines += [common | where | turn for turn in session["turns"]]
    lines += [common | question for question in GOOD["questions"]]
    text = "\n".join(json.dumps(line) for line in lines) + "\n\n"
    assert load(tmp_path, text, "talk.jsonl").histories == load(tmp_path, GOOD).histories


def test_unusual_text_survives(tmp_path: Path) -> None:
    odd = "שלום 🙂\u0000 <script>alert(1)</script>\nnext line\u2028end"
    line = json.dumps({"speaker": "A", "text": odd}, ensure_ascii=False)
    assert load(tmp_path, line, "t.jsonl").histories[0].units[0].turns[0].text == odd


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sessions": None}, "field 'sessions': expected a list, found nothing"),
        ({"sesions": []}, "field 'sesions': unknown; did you mean 'sessions'"),
        (
            {"sessions": [{"turns": [{"text": "x"}]}]},
            r"sessions\[0\], turns\[0\].*'speaker': missing",
        ),
        (
            {"sessions": [{"turns": [{"speaker": "A", "text": " "}]}]},
            "field 'text': expected text, found empty text",
        ),
        (
            {"sessions": [{"turns": [{"speaker": "A", "text": "x", "role": "bot"}]}]},
            "field 'role': must be user or assistant",
        ),
        ({"sessions": [{"date": "6 May", "turns": []}]}, "field 'date': '6 May' is not a date"),
        ({"questions": [{"question": "?"}]}, r"questions\[0\].*'answers': missing"),
        (
            {"questions": [{"question": "?", "answer": "x", "evidence": ["k9"]}]},
            "field 'evidence': there is no turn with id 'k9'",
        ),
        ({"sessions": []}, "has no turns"),
        ({"history": "../../x"}, "field 'history': '../../x' must not hold '/'"),
        ({"history": ".."}, "field 'history': '..' must not"),
        ({"history": "x" * 300}, "100 bytes long at most"),
        (
            {"sessions": [{"id": "a", "turns": [{"speaker": "A", "text": "x"}]}] * 2},
            r"sessions\[1\].*'a' is already the id of another session",
        ),
        (
            {"questions": [{"id": "q", "question": "?", "answer": "x"}] * 2},
            r"questions\[1\].*'q' is another question's id",
        ),
        (
            {"questions": [{"question": "\ud800", "answer": "x"}]},
            "field 'question': holds half of a surrogate pair",
        ),
    ],
)
def test_mistakes_in_json_name_place_and_field(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        load(tmp_path, GOOD | change)


def test_mistakes_in_jsonl_name_the_line(tmp_path: Path) -> None:
    good = '{"speaker": "A", "text": "x"}\n'
    with pytest.raises(DataError, match=r"talk\.jsonl, line 3 is not JSON"):
        load(tmp_path, good + "\n{oops\n", "talk.jsonl")
    with pytest.raises(DataError, match=r"line 2: field 'txt': unknown; did you mean 'text'"):
        load(tmp_path, good + '{"speaker": "A", "txt": "x"}', "talk.jsonl")
    with pytest.raises(DataError, match="line 2: expected an object"):
        load(tmp_path, good + "[1]", "talk.jsonl")
    with pytest.raises(DataError, match="is empty"):
        load(tmp_path, "\n", "talk.jsonl")
    twice = '{"speaker": "A", "text": "x", "id": "same"}\n'
    with pytest.raises(DataError, match="two turns with id 'same'"):
        load(tmp_path, twice + twice, "talk.jsonl")
    with pytest.raises(DataError, match=r"line 2 cannot be read as JSON"):
        load(tmp_path, good + '{"speaker": ' + "9" * 5000 + "}", "talk.jsonl")
    with pytest.raises(DataError, match=r"line 2 cannot be read as JSON"):
        load(tmp_path, good + "[" * 100_000, "talk.jsonl")


def test_a_list_without_conversations_and_a_leading_mark(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no conversation"):
        load(tmp_path, [])
    good = '{"speaker": "A", "text": "x"}\n'
    assert load(tmp_path, "\ufeff" + good, "talk.jsonl").histories
