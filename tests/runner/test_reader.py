"""Prompt assembly: ten entries, five when ten overflow, and text cut only as a last resort."""

from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st

from agentmem.memory import Entry
from agentmem.runner.reader import SYSTEM_PROMPT, TEMPLATE_TOKENS, Room, assemble


def words(text: str) -> int:
    return len(text.split())


FIXED = words(SYSTEM_PROMPT) + words("Notes:\n(none)\n\nQuestion: who ?\nAnswer:") + TEMPLATE_TOKENS


def room(context_words: int) -> Room:
    return Room(FIXED + context_words + 8, 8, 10, 5, words)


def entries(count: int, length: int) -> list[Entry]:
    return [Entry(f"e{i} " + "word " * (length - 1), None, (f"t{i}",)) for i in range(count)]


def test_ten_fit() -> None:
    prompt = assemble("who ?", entries(12, 5), room(60), passthrough=False)
    assert [e.source_ids for e in prompt.used] == [(f"t{i}",) for i in range(10)]
    assert not prompt.overflow
    assert prompt.cut_tokens == 0


def test_five_when_ten_overflow() -> None:
    prompt = assemble("who ?", entries(12, 5), room(40), passthrough=False)
    assert len(prompt.used) == 5
    assert prompt.overflow
    assert prompt.cut_tokens == 0


def test_lowest_rank_goes_first_when_five_overflow() -> None:
    prompt = assemble("who ?", entries(12, 20), room(50), passthrough=False)
    assert [e.source_ids for e in prompt.used] == [("t0",), ("t1",)]
    assert prompt.cut_tokens > 0


def test_a_pass_through_history_loses_its_oldest_part() -> None:
    prompt = assemble("who ?", entries(12, 20), room(50), passthrough=True)
    assert [e.source_ids for e in prompt.used] == [("t10",), ("t11",)]
    assert prompt.overflow


def test_one_entry_too_long_is_shortened_at_the_right_end() -> None:
    numbered = Entry(" ".join(f"w{i}" for i in range(100)))
    ranked = assemble("who ?", [numbered], room(20), passthrough=False).used[0].text
    history = assemble("who ?", [numbered], room(20), passthrough=True).used[0].text
    assert ranked.startswith("w0 ")
    assert history.endswith("w99")


def test_no_entries_is_said_so() -> None:
    prompt = assemble("who ?", [], room(20), passthrough=False)
    assert "(none)" in prompt.messages[1]["content"]
    assert prompt.context_tokens == 0


@given(
    st.lists(st.text(string.ascii_letters + " \n", max_size=200), max_size=15),
    st.integers(1, 80),
    st.booleans(),
)
def test_the_prompt_always_fits(texts: list[str], context: int, passthrough: bool) -> None:
    limits = room(context)
    prompt = assemble("who ?", [Entry(t) for t in texts], limits, passthrough)
    size = sum(words(m["content"]) for m in prompt.messages) + TEMPLATE_TOKENS
    assert size + limits.max_tokens <= limits.window_tokens + 1
