"""Talk that is never asked about, in any amount, no sentence twice in one set.

Part of it competes with the facts: near misses (a value that never became true, of the very people
who are asked about) and news of strangers. Their number grows with the length of the history.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agentmem.errors import UsageError
from agentmem.workloads.base import Style
from agentmem.workloads.generator.life import Life
from agentmem.workloads.generator.stream import Stream
from agentmem.workloads.generator.templates import all_names, attributes, fill, people, say, topics

NEAR_SHARE = 0.2
"""Share of filler exchanges that carry a near miss."""
STRANGER_SHARE = 0.1
TRIES = 500
REPLY_SENTENCES: dict[Style, tuple[int, int]] = {
    "chat": (1, 1),
    "assistant": (5, 9),
    "facts": (0, 0),
}
"""Fewest and most sentences of a reply."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the user says and the reply; None where nobody replies."""

    user: str
    reply: str | None


class Filler:
    """Makes filler exchanges for one life; each number always gives the same exchange, in order."""

    def __init__(self, life: Life, style: Style, *labels: object) -> None:
        self._life, self._style, self._labels = life, style, labels
        self._used: set[str] = set()
        values = sorted({event.value for event in life.log.events})
        self._protected = re.compile(
            r"\b(" + "|".join(re.escape(v) for v in values) + r")\b", re.IGNORECASE
        )
        self._keys = sorted(key for key in attributes() if key not in life.reserved)
        self._strangers = [name for name in all_names() if name not in life.cast]

    def exchange(self, number: object) -> Exchange:
        """Exchange `number`; UsageError once the words are used up."""
        stream = Stream(*self._labels, "filler", number)
        if self._style == "facts":
            maker = self._near if stream.chance(NEAR_SHARE) else self._stranger
            return Exchange(self._fresh(maker, stream), None)
        share, extra = stream.bits() / 2.0**64, ""
        if share < NEAR_SHARE:
            extra = self._fresh(self._near, stream) + " "
        elif share < NEAR_SHARE + STRANGER_SHARE:
            extra = self._fresh(self._stranger, stream) + " "
        low, high = REPLY_SENTENCES[self._style]
        said, reply = self._topic(stream, low + stream.below(high - low + 1))
        return Exchange(extra + said, reply)

    def _fresh(self, maker: object, stream: Stream) -> str:
        """A sentence of the maker that is new in this set and names no value of an event."""
        assert callable(maker)
        for _ in range(TRIES):
            text: str = maker(stream)
            if self._take(text):
                return text
        raise UsageError("workload.history_tokens is more than the generator has words for")

    def _take(self, text: str) -> bool:
        if text in self._used or self._protected.search(text):
            return False
        self._used.add(text)
        return True

    def _near(self, stream: Stream) -> str:
        key = stream.pick(self._keys)
        person = stream.pick(self._life.cast)
        subject = None if person == self._life.log.user else person
        value = stream.pick(self._life.spare[key])
        text = say(stream.pick(attributes()[key].near), subject, value)
        return f"{text[:-1]}, {stream.pick(people()['near_when'])}."

    def _stranger(self, stream: Stream) -> str:
        key = stream.pick(self._keys)
        name = f"{stream.pick(self._strangers)} {stream.pick(people()['surnames'])}"
        template = stream.pick(attributes()[key].statements)
        return say(template, name, stream.pick(self._life.spare[key]))

    def _topic(self, stream: Stream, sentences: int) -> tuple[str, str]:
        """A user line and a reply of so many sentences about the same thing."""
        topic = stream.pick(topics())
        for _ in range(TRIES):
            words = {slot: stream.pick(topic.slots[slot]) for slot in "abc"}
            said = fill(stream.pick(topic.user), words)
            reply = fill(stream.pick(topic.reply), words)
            if said not in self._used and self._take(reply) and self._take(said):
                break
        else:
            raise UsageError("workload.history_tokens is more than the generator has words for")
        more = [self._fresh(self._advice, stream) for _ in range(sentences - 1)]
        return said, " ".join([reply, *more])

    def _advice(self, stream: Stream) -> str:
        topic = stream.pick(topics())
        words = {slot: stream.pick(topic.slots[slot]) for slot in "abc"}
        return fill(stream.pick(topic.reply), words)
