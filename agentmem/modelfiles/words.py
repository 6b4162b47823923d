"""A reference tokenizer that needs no files: words and single signs."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence

from agentmem.modelfiles.tokenizer import Tokenizer

# a word or one sign, each with the white space in front of it; white space at the very end
_TOKEN = re.compile(r"\s*\w+|\s*[^\w\s]|\s+")


class WordTokenizer(Tokenizer):
    """`words-v1`: counts and cuts are the same everywhere; ids number words as they appear."""

    name = "words-v1"

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._words: list[str] = []
        self._lock = threading.Lock()

    @property
    def vocab_size(self) -> int:  # type: ignore[override]
        """Number of different tokens seen so far."""
        return len(self._words)

    @property
    def vocabulary(self) -> list[bytes]:
        """Bytes of the tokens seen so far."""
        return [word.encode() for word in self._words]

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Ids of words and signs; there are no control tokens."""
        with self._lock:
            return [self._id(word) for word in _TOKEN.findall(text)]

    def decode(self, ids: Sequence[int], skip_control: bool = True) -> str:
        """The text that was encoded, white space included."""
        return "".join(self._words[i] for i in ids)

    def starts(self, text: str) -> list[int]:
        """Offsets of words and signs, white space in front included."""
        return [match.start() for match in _TOKEN.finditer(text)]

    def count(self, text: str) -> int:
        """Number of words and signs."""
        return sum(1 for _ in _TOKEN.finditer(text))

    def _id(self, word: str) -> int:
        if word not in self._ids:
            self._ids[word] = len(self._words)
            self._words.append(word)
        return self._ids[word]
