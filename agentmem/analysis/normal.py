"""Text rules that scores rest on: normalisation, token F1, and what counts as "not known"."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter

_ARTICLES = {"a", "an", "the"}
_PUNCTUATION = dict.fromkeys(map(ord, string.punctuation + "“”‘’…–—·"), " ")

UNKNOWN_PHRASES = (
    "unknown",
    "not known",
    "not mentioned",
    "not stated",
    "not specified",
    "not provided",
    "not given",
    "not available",
    "no information",
    "no mention",
    "not enough information",
    "insufficient information",
    "i do not know",
    "i don t know",
    "i dont know",
    "do not have",
    "don t have",
    "does not say",
    "doesn t say",
    "does not mention",
    "doesn t mention",
    "cannot be determined",
    "cannot answer",
    "can t answer",
    "cannot determine",
    "not sure",
    "no idea",
)
"""Phrases that make an answer an abstention, after punctuation became spaces."""


def words(text: str) -> list[str]:
    """Lower-case words of a text, punctuation and articles left out."""
    plain = unicodedata.normalize("NFKC", text).casefold().translate(_PUNCTUATION)
    return [word for word in plain.split() if word not in _ARTICLES]


def normalise(text: str) -> str:
    return " ".join(words(text))


def contains(text: str, phrase: str) -> bool:
    """Whether the phrase's words occur in the text in a row, as whole words."""
    wanted, there = words(phrase), words(text)
    n = len(wanted)
    return bool(n) and any(there[i : i + n] == wanted for i in range(len(there) - n + 1))


def token_f1(answer: str, gold: str) -> float:
    """Harmonic mean of word precision and recall, words counted with repetition; 0 to 1."""
    got, wanted = Counter(words(answer)), Counter(words(gold))
    if not got or not wanted:
        return float(got == wanted)
    shared = sum((got & wanted).values())
    return 2 * shared / (got.total() + wanted.total())


def says_unknown(answer: str) -> bool:
    """Whether an answer says that it does not know."""
    plain = re.sub(r"\s+", " ", answer.casefold().translate(_PUNCTUATION)).strip()
    return any(re.search(rf"\b{phrase}\b", plain) for phrase in UNKNOWN_PHRASES)
