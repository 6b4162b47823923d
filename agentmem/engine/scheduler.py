"""Which sequence runs next, and how much of it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from agentmem.engine.request import TrafficClass
from agentmem.engine.sequence import Sequence

PREFILL_CHUNK = 512
_CLASSES: tuple[TrafficClass, ...] = ("interactive", "background")


@dataclass(frozen=True, slots=True)
class Step:
    """One forward pass: this many pending tokens of one sequence."""

    sequence: Sequence
    tokens: int

    @property
    def samples(self) -> bool:
        """True when the step reaches the end of what is known, so that a token can be chosen."""
        return self.tokens == self.sequence.pending


class Scheduler:
    """First come, first served within a class; background runs only when nothing interactive is.

    At most one sequence of a class holds state, and it may be interrupted between steps.
    """

    def __init__(self, chunk: int = PREFILL_CHUNK) -> None:
        self._chunk = chunk
        self._queues: dict[TrafficClass, deque[Sequence]] = {name: deque() for name in _CLASSES}

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence behind those of its class."""
        self._queues[sequence.request.traffic_class].append(sequence)

    def head(self) -> Sequence | None:
        """The sequence whose turn it is, or None when nothing waits."""
        return next((self._queues[name][0] for name in _CLASSES if self._queues[name]), None)

    def schedule(self, sequence: Sequence) -> Step:
        """The next step of a sequence that has its cache."""
        return Step(sequence, min(self._chunk, sequence.pending))

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, finished or not."""
        self._queues[sequence.request.traffic_class].remove(sequence)

    def waiting(self) -> list[Sequence]:
        """All sequences, running or not."""
        return [sequence for name in _CLASSES for sequence in self._queues[name]]
