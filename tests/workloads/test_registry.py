"""Names, options and missing data: one clear line each."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentmem.errors import DataError, UsageError
from agentmem.workloads import WorkloadSpec, build
from agentmem.workloads.base import Question
from agentmem.workloads.registry import pick_questions


def test_unknown_workload_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'locomo'"):
        build(WorkloadSpec("lokomo"))


def test_option_of_another_workload_is_refused() -> None:
    with pytest.raises(UsageError, match="has no option 'samples'"):
        build(WorkloadSpec("generated", samples=("conv-30",)))


def test_unknown_key_of_the_table_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"workload\.sesions.*did you mean 'sessions'"):
        WorkloadSpec.from_mapping({"name": "generated", "sesions": 4})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("unit", "sesion", "did you mean 'session'"),
        ("sessions", "four", "a whole number"),
        ("sessions", True, "a whole number"),
        ("sessions", 0, "must be 1 to 10,000, not 0"),
        ("sessions", 100_000, "must be 1 to 10,000"),
        ("history_tokens", 10**12, "must be 1 to 100,000,000"),
        ("seed", 2**70, "64 bits"),
        ("path", "a\0b", "is not a path"),
        ("samples", "conv-30", "must be a list"),
        ("captions", 1, "true or false"),
        ("style", "chatty", "did you mean 'chat'"),
    ],
)
def test_values_of_a_wrong_type_are_refused(key: str, value: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        WorkloadSpec.from_mapping({"name": "generated", key: value})


def test_table_without_a_name() -> None:
    with pytest.raises(UsageError, match="needs a name"):
        WorkloadSpec.from_mapping({"seed": 1})


@pytest.mark.parametrize("name", ["locomo", "longmemeval", "factconsolidation", "conversation"])
def test_missing_data_says_what_where_and_how(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AGENTMEM_DATA", raising=False)
    with pytest.raises(DataError, match=r"no place given.*workload\.path.*AGENTMEM_DATA"):
        build(WorkloadSpec(name))
    with pytest.raises(DataError, match=f"not found at {tmp_path}/nothing"):
        build(WorkloadSpec(name, path=str(tmp_path / "nothing.json")))
    monkeypatch.setenv("AGENTMEM_DATA", str(tmp_path))
    with pytest.raises(DataError, match=f"not found at {tmp_path}"):
        build(WorkloadSpec(name))


def test_broken_json_says_the_line(tmp_path: Path) -> None:
    path = tmp_path / "locomo10.json"
    path.write_text('[\n {"a": 1,\n}]')
    with pytest.raises(DataError, match="not JSON: line 3"):
        build(WorkloadSpec("locomo", path=str(path)))


def test_params_name_everything_that_shaped_the_data() -> None:
    params = build(WorkloadSpec("generated", sessions=4, unit="chunk", chunk_tokens=64)).params
    assert params["unit"] == "chunk"
    assert params["chunk_tokens"] == 64
    assert params["history_tokens"] == 2000
    assert params["tokenizer"] == "words-v1"
    assert "samples" not in params
    assert "chunk_tokens" not in build(WorkloadSpec("generated", sessions=4)).params


def test_questions_are_taken_from_the_categories_in_turn() -> None:
    questions = tuple(
        Question(str(n), "?", category, ("x",)) for n, category in enumerate("aaaaabbc")
    )
    assert [q.category for q in pick_questions(questions, 5)] == list("aabbc")
    assert pick_questions(questions, None) == questions
    assert pick_questions(questions, 99) == questions
