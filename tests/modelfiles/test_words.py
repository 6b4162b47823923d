"""The reference tokenizer that needs no files, and the promise that cutting loses nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.errors import DataError
from agentmem.modelfiles.tokenizer import reference_tokenizer
from agentmem.modelfiles.words import WordTokenizer


def test_words_and_signs_are_counted() -> None:
    words = WordTokenizer()
    assert words.count("The dog, Rex, isn't here.") == 10
    assert words.count("") == 0
    assert words.count("  \n") == 1
    assert words.encode("a b a") == [0, 1, 2]
    assert words.encode(" b a") == [1, 2]


@given(st.text(), st.integers(1, 9))
def test_pieces_join_to_the_text_and_hold_what_was_asked(text: str, size: int) -> None:
    words = WordTokenizer()
    pieces = words.cut(text, size)
    assert "".join(pieces) == text
    assert all(pieces)
    assert [words.count(piece) for piece in pieces[:-1]] == [size] * (len(pieces) - 1)
    assert words.decode(words.encode(text)) == text


def test_a_piece_has_at_least_one_token() -> None:
    with pytest.raises(ValueError, match="at least one"):
        WordTokenizer().cut("a b", 0)


def test_reference_tokenizers_have_names() -> None:
    assert reference_tokenizer("words-v1").name == "words-v1"
    with pytest.raises(DataError, match="did you mean 'words-v1'"):
        reference_tokenizer("word-v1")
