"""The same token ids for every engine, new ones every round. Standard library only."""

from __future__ import annotations

import random

FIRST, LAST = 1000, 40_000
"""Ordinary words in all vocabularies used here; control tokens lie below."""


def draw(source: random.Random, length: int, vocabulary: int = LAST) -> list[int]:
    """`length` random ids of a vocabulary."""
    last = min(LAST, vocabulary - 1)
    first = min(FIRST, last // 2)
    return [source.randint(first, last) for _ in range(length)]


def prompts(count: int, length: int, *, seed: int, vocabulary: int = LAST) -> list[list[int]]:
    """`count` prompts of `length` random ids; the same for the same seed, alike for no two."""
    source = random.Random(f"{seed}/{count}/{length}")
    return [draw(source, length, vocabulary) for _ in range(count)]


PASSAGE = (
    "The ferry to the island leaves at nine in the morning and returns at six in the evening. "
    "Tickets cost twelve euros for adults and five for children, and dogs travel free of charge. "
    "On Sundays the ferry also stops at the lighthouse, where a small museum shows old lamps."
)
OPENINGS = (
    "Write a strange poem in which no line is like another:",
    "List unusual words, none twice:",
    "Here are facts about planets, rivers, birds, engines, bread and chess:",
    "def parse(text):",
    "Once upon a time there was a",
    "Dear Sir or Madam, I am writing about",
    "The history of glass began when",
    "In mathematics, a group is",
)
"""Beginnings of free text: what follows repeats little of them."""


def repeating(copies: int = 6) -> str:
    """A text that goes on as it began: nearly every draft from it is right."""
    return "\n".join([PASSAGE] * copies) + "\n" + PASSAGE[:40]
