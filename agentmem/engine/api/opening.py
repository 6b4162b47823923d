"""Where in an answer does a tool call begin?

Two openings are known: the tag `<tool_call>` anywhere, and, at the very start (after blanks or a
code fence), `{"name": "<a known tool>",`. Everything else is text, so under `tool_choice: auto` a
model is free to answer in words, and in JSON too. Engine and server run the same scanner: one over
tokens, to begin the constraint, one over text, to take the calls out of the answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

TAG = "<tool_call>"
END_TAG = "</tool_call>"


@dataclass(frozen=True, slots=True)
class Opened:
    """A call has begun. `rest` is its JSON so far, `raw` the same text as it was written."""

    rest: str
    raw: str
    tagged: bool


class OpeningScanner:
    """Feed it an answer piece by piece; it gives text that is surely text, then the opening."""

    def __init__(self, names: Sequence[str]) -> None:
        self._held, self._at_start = "", True
        self._full, self._partial = _patterns(tuple(names))

    def feed(self, piece: str) -> tuple[str, Opened | None]:
        """Text to pass on, and the opening when it is complete. Not to be fed after that."""
        self._held += piece
        if self._at_start:
            if found := self._full.match(self._held):
                name = found.group("name")
                rest = f'{{"name": "{name}",{self._held[found.end() :]}'
                return "", Opened(rest, self._held, tagged=False)
            self._at_start = bool(self._partial.fullmatch(self._held))
            if self._at_start:
                return "", None
        before, tag, after = self._held.partition(TAG)
        if tag:
            self._held = ""
            return before.rstrip("\n"), Opened(after, TAG + after, tagged=True)
        sure = len(self._held) - _undecided(self._held)
        text, self._held = self._held[:sure], self._held[sure:]
        return text, None

    def finish(self) -> str:
        """Text still held back when the answer ends without an opening."""
        held, self._held = self._held, ""
        return held


def _undecided(text: str) -> int:
    """Length of the end of `text` that may belong to a tag: line breaks and a beginning of it."""
    longest = min(len(text), len(TAG) - 1)
    begun = next((n for n in range(longest, 0, -1) if text.endswith(TAG[:n])), 0)
    before = text[: len(text) - begun]
    return len(text) - len(before.rstrip("\n"))


def _patterns(names: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """The opening at the start of an answer, and anything that may still become one."""
    blank = [r"\s*"]
    head = [r"\{", *blank, *_letters('"name"'), *blank, ":", *blank, '"']
    ticks = _letters("```")
    partials: list[str] = []
    for name in names:
        tail = [*head, *_letters(name), '"', *blank, ","]
        fences: list[list[str]] = [[], [*ticks, *blank], [*ticks, *_letters("json"), *blank]]
        partials += [_prefixes([*blank, *fence, *tail]) for fence in fences]
    known = "|".join(re.escape(name) for name in names)
    opening = rf"\s*(?:```(?:json)?\s*)?{''.join(head)}(?P<name>{known})\"\s*,"
    return re.compile(opening), re.compile("|".join(partials))


def _letters(word: str) -> list[str]:
    return [re.escape(letter) for letter in word]


def _prefixes(atoms: list[str]) -> str:
    """Pattern of every beginning of the sequence of atoms."""
    pattern = ""
    for atom in reversed(atoms):
        pattern = f"(?:{atom}{pattern})?"
    return pattern
