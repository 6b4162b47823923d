"""Generated histories: the text says what the log says, in the wanted length, always the same."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from agentmem.errors import DataError, UsageError
from agentmem.workloads import WorkloadSpec, build, content_hash
from agentmem.workloads.check import check
from agentmem.workloads.generator.asks import KINDS
from agentmem.workloads.generator.solve import read_sentence
from agentmem.workloads.generator.templates import attributes, people, say, topics

QUICKSTART = WorkloadSpec(
    "generated", seed=7, sessions=4, history_tokens=1000, questions=10, tokenizer="words-v1"
)
QUICKSTART_HASH = "15c24153a46cb16862e9ee255543df2c469efd02131c6e0301e7a425bf85eaf8"
ROOT = Path(__file__).parents[2]


def test_quickstart_is_what_the_profile_promises() -> None:
    (history,) = build(QUICKSTART).histories
    assert len(history.units) == 4
    assert abs(history.source_tokens - 1000) <= 10
    kinds = sorted(question.category for question in history.questions)
    assert kinds == sorted(
        ["current"] * 4
        + ["previous"] * 2
        + ["two-hop"] * 2
        + ["abstain-confusable", "abstain-unmentioned"]
    )
    assert sum(bool(question.stale) for question in history.questions) >= 2
    assert len({unit.at for unit in history.units}) == 4


def test_same_bytes_in_other_processes_and_hash_seeds() -> None:
    code = (
        "from tests.workloads.test_generator import QUICKSTART\n"
        "from agentmem.workloads import build, content_hash\n"
        "print(content_hash(build(QUICKSTART)))"
    )
    hashes = {QUICKSTART_HASH}
    for seed in ("0", "4242"):
        environment = dict(os.environ, PYTHONHASHSEED=seed, PYTHONPATH=str(ROOT))
        command = [sys.executable, "-c", code]
        out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        hashes.add(out.stdout.strip())
    assert hashes == {content_hash(build(QUICKSTART))}


def test_length_holds_in_a_models_own_tokens() -> None:
    spec = dataclasses.replace(QUICKSTART, tokenizer="smollm2")
    try:
        (history,) = build(spec).histories
    except DataError as error:
        pytest.skip(str(error))
    assert abs(history.source_tokens - 1000) <= 10


def test_another_seed_gives_another_life() -> None:
    other = WorkloadSpec("generated", seed=8, sessions=4, history_tokens=1000, questions=10)
    assert content_hash(build(other)) != content_hash(build(QUICKSTART))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("style", ["chat", "assistant", "facts"])
def test_every_check_holds(seed: int, style: str) -> None:
    spec = WorkloadSpec(
        "generated",
        seed=seed,
        history_tokens=6000,
        questions=30,
        categories=KINDS,
        style=style,  # type: ignore[arg-type]
    )
    failed = [row for row in check(spec) if not row.ok]
    assert failed == []


def test_checks_notice_a_spoiled_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """A generator that says one value twice, and mentions what must stay unsaid, is caught."""
    from agentmem.workloads.generator import check as module

    def spoiled(spec: WorkloadSpec, counter: object) -> object:
        made = original(spec, counter)  # type: ignore[arg-type]
        one = made[0]
        question = next(q for q in one.conversation.questions if q.category == "current")
        first = one.conversation.sessions[0]
        copy = dataclasses.replace(first.turns[0], source_id="x", text=question.evidence_texts[0])
        sessions = (
            dataclasses.replace(first, turns=(*first.turns, copy, copy)),
            *one.conversation.sessions[1:],
        )
        conversation = dataclasses.replace(one.conversation, sessions=sessions)
        return (dataclasses.replace(one, conversation=conversation),)

    original = module.generate
    monkeypatch.setattr(module, "generate", spoiled)
    failed = {row.name for row in check(QUICKSTART) if not row.ok}
    assert {"gold found nowhere else", "no user turn twice"} <= failed
    assert "life-0: tokens within 1%" in failed


def test_a_short_history_is_contained_in_a_long_one() -> None:
    short, long = (
        build(WorkloadSpec("generated", seed=5, history_tokens=n, unit="turn")).histories[0]
        for n in (12000, 24000)
    )
    lines = {unit.text for unit in long.units}
    missing = [unit.text for unit in short.units if unit.text not in lines]
    assert len(missing) <= 8  # the exchanges that trim the length
    assert [q.text for q in short.questions] == [q.text for q in long.questions]
    assert [q.golds for q in short.questions] == [q.golds for q in long.questions]
    assert [q.evidence_texts for q in short.questions] == [q.evidence_texts for q in long.questions]


def test_competitors_grow_with_length() -> None:
    def competitors(tokens: int) -> int:
        (history,) = build(WorkloadSpec("generated", seed=5, history_tokens=tokens)).histories
        text = "\n".join(unit.text for unit in history.units)
        return sum(text.count(f", {when}.") for when in people()["near_when"])

    few, many = competitors(4000), competitors(16000)
    assert few >= 3
    assert many > 3 * few


def test_sessions_are_dated_in_order_and_grow_in_number() -> None:
    (history,) = build(WorkloadSpec("generated", seed=5, history_tokens=30000)).histories
    stamps = [unit.at or "" for unit in history.units]
    assert len(stamps) > 12
    assert all(a < b for a, b in pairwise(stamps))


def test_too_short_for_its_facts_is_a_clear_error() -> None:
    with pytest.raises(UsageError, match=r"history_tokens = 100 is too short: the facts alone"):
        build(WorkloadSpec("generated", history_tokens=100))


def test_change_needs_two_sessions() -> None:
    with pytest.raises(UsageError, match="at least 2"):
        build(WorkloadSpec("generated", sessions=1))


@pytest.mark.parametrize("key", list(attributes()))
def test_each_statement_reads_back_as_itself_only(key: str) -> None:
    attribute = attributes()[key]
    assert len(attribute.statements) >= 20
    assert len(set(attribute.values)) == len(attribute.values) >= 20
    for template in attribute.statements:
        assert "{V}" in template
        for subject in (None, "Odile"):
            for value in attribute.values[::7]:
                found = read_sentence(say(template, subject, value))
                assert [(a, g["value"]) for a, g in found] == [(key, value)], template


@pytest.mark.parametrize("key", list(attributes()))
def test_near_misses_read_back_as_nothing(key: str) -> None:
    attribute = attributes()[key]
    for template in attribute.near:
        for subject in (None, "Odile"):
            text = say(template, subject, attribute.values[0])
            assert read_sentence(text) == []
            assert read_sentence(f"{text[:-1]}, the other day.") == []


def test_small_talk_uses_every_slot_so_that_it_never_runs_out() -> None:
    for topic in topics():
        for frame in (*topic.user, *topic.reply):
            assert all(f"{{{slot}" in frame for slot in "abc"), frame
