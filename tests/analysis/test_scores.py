"""Scores against cases worked by hand, and properties that must hold for any text."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.analysis.normal import contains, normalise, says_unknown, token_f1
from agentmem.analysis.scores import score
from agentmem.records import Query

TEXTS = st.text(string.ascii_letters + string.digits + " .,!'", max_size=60)


def query(answer: str | None, golds: tuple[str, ...] = ("Lyon",), **changes: Any) -> Query:
    values: dict[str, Any] = {
        "scope": "s",
        "system": "x",
        "history": "h",
        "question_id": "q",
        "category": "current",
        "question": "?",
        "golds": golds,
        "stale": ("Turin",),
        "abstain": False,
        "evidence": ("t1", "t2"),
        "evidence_texts": (),
        "status": "ok" if answer is not None else "failed",
        "answer": answer,
        "retrieved_ids": ("t1", "t9"),
        "retrieved_texts": ("Ana moved to Lyon.",),
        "k": 10,
        "overflow": False,
        "cut_tokens": 0,
        "context_tokens": None,
        "retrieval_s": None,
        "generation_s": None,
        "version_read": None,
        "native_answer": False,
    }
    return Query(**(values | changes))


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("The Cat!", "cat"),
        ("  A  dog,an owl ", "dog owl"),
        ("It's 3.5", "it s 3 5"),
        ("“Lyon” — Île", "lyon île"),
        ("ＡＢＣ", "abc"),
        ("", ""),
    ],
)
def test_normalise(text: str, plain: str) -> None:
    assert normalise(text) == plain


@pytest.mark.parametrize(
    ("answer", "gold", "f1"),
    [
        ("Lyon", "Lyon", 1.0),
        ("the city of Lyon", "Lyon", 2 * (1 / 3) * 1 / (1 / 3 + 1)),
        ("a b c d", "b c x", 2 * 2 / (3 + 3)),
        ("red red blue", "red blue blue", 2 / 3),
        ("nothing", "Lyon", 0.0),
        ("", "Lyon", 0.0),
        ("the", "an", 1.0),
    ],
)
def test_f1_by_hand(answer: str, gold: str, f1: float) -> None:
    assert token_f1(answer, gold) == pytest.approx(f1)


def test_whole_words_only() -> None:
    assert contains("Ana has 3 cats", "3")
    assert not contains("Ana has 30 cats", "3")
    assert contains("She lives in New York City.", "new york")
    assert not contains("New old York", "New York")
    assert not contains("anything", "the")


@pytest.mark.parametrize(
    ("answer", "golds", "correct", "stale"),
    [
        ("She lives in Lyon.", ("Lyon",), True, False),
        ("She lives in Turin.", ("Lyon",), False, True),
        ("Lyon, formerly Turin", ("Lyon",), True, False),
        ("Paris", ("Lyon", "paris"), True, False),
        ("She knows no one", ("no",), False, False),
        ("No, she does not", ("no",), True, False),
        ("About 3 of them", ("3",), True, False),
        ("About 31 of them", ("3",), False, False),
        ("", ("Lyon",), False, False),
    ],
)
def test_correct_and_stale(answer: str, golds: tuple[str, ...], correct: bool, stale: bool) -> None:
    found = score(query(answer, golds))
    assert (found.correct, found.stale_answer) == (correct, stale)


def test_hedging_is_marked() -> None:
    assert score(query("Lyon, formerly Turin")).hedged is True
    assert score(query("Lyon")).hedged is False
    assert score(query("Lyon", stale=())).hedged is None


@pytest.mark.parametrize("answer", ["Unknown.", "I don't know", "It is not mentioned anywhere."])
def test_abstaining_is_right_only_where_asked(answer: str) -> None:
    assert says_unknown(answer)
    assert score(query(answer, (), abstain=True)).correct
    wrong = score(query(answer))
    assert wrong.abstained and not wrong.correct


def test_an_answer_to_an_unanswerable_question_is_wrong() -> None:
    found = score(query("Size 38", (), abstain=True))
    assert not found.correct and found.f1 is None and found.recall_text is None


def test_a_failed_question_counts_as_asked() -> None:
    found = score(query(None))
    assert (found.answered, found.correct, found.f1) == (False, False, 0.0)
    assert found.recall_text is None


def test_evidence_recall_has_two_columns() -> None:
    found = score(query("x"))
    assert (found.recall_ids, found.recall_text) == (0.5, 1.0)
    unknown = score(query("x", retrieved_ids=None, retrieved_texts=("nothing",)))
    assert (unknown.recall_ids, unknown.recall_text) == (None, 0.0)
    texts = ("moved to Lyon", "left Turin")
    assert score(query("x", evidence_texts=texts)).recall_evidence_text == 0.5


@given(TEXTS, TEXTS)
def test_f1_is_symmetric_and_bounded(a: str, b: str) -> None:
    assert 0.0 <= token_f1(a, b) <= 1.0
    assert token_f1(a, b) == pytest.approx(token_f1(b, a))


@given(TEXTS)
def test_normalise_is_stable(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)
    assert token_f1(text, text) == 1.0


@given(TEXTS, TEXTS, TEXTS)
def test_what_is_put_in_is_found(before: str, gold: str, after: str) -> None:
    text = f"{before} {gold} {after}"
    assert contains(text, gold) == bool(normalise(gold))


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=3))
def test_correct_implies_substring(answer: str, golds: list[str]) -> None:
    found = score(query(answer, tuple(golds)))
    assert not (found.correct and not found.substring)
    assert not (found.exact and found.f1 != 1.0)
