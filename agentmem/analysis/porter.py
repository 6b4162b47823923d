"""Porter's stemmer with the changes that NLTK made to it, which LoCoMo's authors score with.

M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980. NLTK departs from it in
irregular words, in words of one or two letters (left alone), in short words in `ies` and `ied`
(dies: die), in a final `y` (i after a consonant only: enjoy stays), in `alli`, `bli`, `fulli` and
`logi`, and in taking two letters such as `at` for a short syllable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

Condition = Callable[[str], bool]
Rule = tuple[str, str, Condition]
"""Suffix, what takes its place, and what must hold for the rest of the word."""

IRREGULAR = {
    "skies": "sky", "sky": "sky", "dying": "die", "lying": "lie", "tying": "tie", "news": "news",
    "innings": "inning", "inning": "inning", "outings": "outing", "outing": "outing",
    "cannings": "canning", "canning": "canning", "howe": "howe", "proceed": "proceed",
    "exceed": "exceed", "succeed": "succeed",
}  # fmt: skip


@cache
def stem(word: str) -> str:
    """Stem of one word in lower case."""
    if word in IRREGULAR:
        return IRREGULAR[word]
    if len(word) <= 2:
        return word
    for step in (_plural, _past, _y, _double_suffix, _suffix, _last_suffix, _e, _ll):
        word = step(word)
    return word


def _shape(word: str) -> str:
    """The word as v and c; y is a consonant at the beginning and after a vowel."""
    shape = ""
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and shape.endswith("c"))
        shape += "v" if vowel else "c"
    return shape


def _measure(word: str) -> int:
    """How often consonants follow vowels."""
    return len(re.findall("v+c+", _shape(word)))


def _some(word: str) -> bool:
    return _measure(word) > 0


def _long(word: str) -> bool:
    return _measure(word) > 1


def _short_syllable(word: str) -> bool:
    """Ends as in hop: consonant, vowel, consonant other than w, x, y; or is as short as at."""
    shape = _shape(word)
    return shape == "vc" or (shape.endswith("cvc") and word[-1] not in "wxy")


def _always(word: str) -> bool:
    return True


def _first(word: str, rules: Sequence[Rule]) -> str:
    """Apply the first rule whose suffix fits; when its condition fails no other is tried."""
    for suffix, instead, holds in rules:
        if word.endswith(suffix):
            rest = word[: len(word) - len(suffix)]
            return rest + instead if holds(rest) else word
    return word


def _plural(word: str) -> str:
    if word.endswith("ies") and len(word) == 4:
        return word[:-1]
    return _first(
        word,
        (("sses", "ss", _always), ("ies", "i", _always), ("ss", "ss", _always), ("s", "", _always)),
    )


def _past(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _some(word[:-3]) else word
    for suffix in ("ed", "ing"):
        rest = word[: -len(suffix)]
        if word.endswith(suffix) and "v" in _shape(rest):
            return _mended(rest)
    return word


def _mended(rest: str) -> str:
    """What is left of hop-ped, fil-ing, conflat-ed gets its ending back."""
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if len(rest) > 1 and rest[-1] == rest[-2] and _shape(rest)[-1] == "c":
        return rest if rest[-1] in "lsz" else rest[:-1]
    return rest + "e" if _measure(rest) == 1 and _short_syllable(rest) else rest


def _y(word: str) -> str:
    rest = word[:-1]
    turned = word.endswith("y") and len(rest) > 1 and _shape(rest)[-1] == "c"
    return rest + "i" if turned else word


DOUBLE: tuple[Rule, ...] = tuple(
    (suffix, instead, _some)
    for suffix, instead in (
        ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"),
        ("izer", "ize"), ("bli", "ble"), ("alli", "al"), ("entli", "ent"), ("eli", "e"),
        ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"), ("ator", "ate"), ("alism", "al"),
        ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"),
        ("iviti", "ive"), ("biliti", "ble"), ("fulli", "ful"),
    )
)  # fmt: skip
# The l of logi counts as part of what is left, so that geologi is long enough.
LOGI: Rule = ("logi", "log", lambda rest: _some(rest + "l"))


def _double_suffix(word: str) -> str:
    if word.endswith("alli") and _some(word[:-4]):
        return _double_suffix(word[:-2])
    return _first(word, (*DOUBLE, LOGI))


def _suffix(word: str) -> str:
    pairs = (
        ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"),
        ("ful", ""), ("ness", ""),
    )  # fmt: skip
    return _first(word, [(suffix, instead, _some) for suffix, instead in pairs])


LAST: tuple[Rule, ...] = (
    *((s, "", _long) for s in ("al", "ance", "ence", "er", "ic", "able", "ible", "ant")),
    *((s, "", _long) for s in ("ement", "ment", "ent")),
    ("ion", "", lambda rest: _long(rest) and rest[-1] in "st"),
    *((s, "", _long) for s in ("ou", "ism", "ate", "iti", "ous", "ive", "ize")),
)


def _last_suffix(word: str) -> str:
    return _first(word, LAST)


def _e(word: str) -> str:
    rest = word[:-1]
    if not word.endswith("e"):
        return word
    measure = _measure(rest)
    return rest if measure > 1 or (measure == 1 and not _short_syllable(rest)) else word


def _ll(word: str) -> str:
    return word[:-1] if word.endswith("ll") and _long(word[:-1]) else word
