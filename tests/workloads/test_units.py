"""Cutting: nothing is lost, every unit knows its turns, lengths are measured once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.memory import Turn
from agentmem.workloads.base import Conversation, Session, UnitKind, WorkloadSpec
from agentmem.workloads.text import date_label, history_text
from agentmem.workloads.tokens import reference
from agentmem.workloads.units import cut

WORDS = reference("words-v1")


def conversation(sizes: list[list[int]], dated: bool = True) -> Conversation:
    """Sessions of turns with so many words; every turn's words name the turn."""
    sessions = []
    for s, row in enumerate(sizes):
        at = f"2024-03-{s + 1:02}T09:30:00" if dated else None
        turns = tuple(
            Turn(f"{s}:{t}", "Ann" if t % 2 else "", "user", " ".join([f"w{s}x{t}"] * size), at)
            for t, size in enumerate(row)
        )
        sessions.append(Session(f"s{s}", at, turns))
    return Conversation("h", "u", tuple(sessions), ())


@pytest.mark.parametrize(
    ("unit", "expected"), [("turn", 6), ("pair", 4), ("session", 2), ("chunk", 6)]
)
def test_number_of_units(unit: UnitKind, expected: int) -> None:
    history = cut(
        conversation([[3, 3, 3], [9, 9, 9]]), WorkloadSpec("x", unit=unit, chunk_tokens=10), WORDS
    )
    assert len(history.units) == expected
    assert len({u.unit_id for u in history.units}) == expected
    assert all(u.user == "u" and u.at for u in history.units)
    assert history.unit_tokens == tuple(WORDS.count(u.text) for u in history.units)


def test_source_size_does_not_depend_on_the_unit() -> None:
    talk = conversation([[3, 4], [5, 6, 7]])
    sizes = {
        (history.source_tokens, history.source_chars)
        for unit in ("turn", "pair", "session", "chunk")
        for history in [cut(talk, WorkloadSpec("x", unit=unit), WORDS)]
    }
    assert sizes == {(WORDS.count(history_text(talk)), len(history_text(talk)))}


def test_a_turn_alone_carries_date_and_speaker() -> None:
    history = cut(conversation([[1, 1]]), WorkloadSpec("x", unit="turn"), WORDS)
    assert [u.text for u in history.units] == [
        "[1 March 2024, 09:30] w0x0",
        "[1 March 2024, 09:30] Ann: w0x1",
    ]


def test_a_day_without_time_has_no_clock() -> None:
    assert date_label("2024-05-31") == "31 May 2024"
    assert date_label(None) == ""


@given(
    st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=5), min_size=1, max_size=4),
    st.integers(1, 40),
    st.booleans(),
)
def test_chunks_join_to_the_history_and_name_exactly_their_turns(
    sizes: list[list[int]], length: int, dated: bool
) -> None:
    talk = conversation(sizes, dated)
    history = cut(talk, WorkloadSpec("x", unit="chunk", chunk_tokens=length), WORDS)
    assert "".join(u.text for u in history.units) == history_text(talk)
    assert all(n == length for n in history.unit_tokens[:-1])
    said: dict[str, str] = {}
    for unit in history.units:
        for turn in unit.turns:
            assert turn.text in unit.text
            said[turn.source_id] = said.get(turn.source_id, "") + turn.text
    assert said == {t.source_id: t.text for s in talk.sessions for t in s.turns}
