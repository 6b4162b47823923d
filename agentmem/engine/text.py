"""From generated tokens to text that can be shown: whole characters, nothing of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Sequence


class TextStream:
    """Text of one answer as its tokens come.

    A character that is still incomplete is held back, and so is any end of the text that could
    become a stop string. Control tokens give no text.
    """

    def __init__(
        self, vocabulary: Sequence[bytes], control_ids: Collection[int], stop: Sequence[str] = ()
    ) -> None:
        self._vocabulary = vocabulary
        self._control = control_ids
        self._stop = [s for s in stop if s]
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""
        self.stopped = False
        """True once a stop string has appeared; the text ends before it."""

    def push(self, token: int) -> str:
        """Text that became certain with this token."""
        if self.stopped or token in self._control or token >= len(self._vocabulary):
            return ""
        return self._release(self._decoder.decode(self._vocabulary[token]))

    def finish(self) -> str:
        """What was held back, once it is known that no more tokens come."""
        if self.stopped:
            return ""
        certain = self._release(self._decoder.decode(b"", final=True))
        rest, self._held = self._held, ""
        return certain if self.stopped else certain + rest

    def _release(self, new: str) -> str:
        text = self._held + new
        found = [at for at in (text.find(s) for s in self._stop) if at >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        hold = max((_overlap(text, s) for s in self._stop), default=0)
        self._held = text[len(text) - hold :]
        return text[: len(text) - hold]


def _overlap(text: str, stop: str) -> int:
    """Longest end of `text` that is a beginning of `stop`."""
    for n in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[len(text) - n :]):
            return n
    return 0
