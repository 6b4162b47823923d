"""What runs in the next step: rows of several sequences, within budgets of tokens and blocks.

Every step first takes the next token of whoever generates, then pieces of prompts; interactive
before background, first come first served within a class. Background work is bounded in two ways.
While interactive requests are about, and for `calm_steps` steps behind the last one, a step has
`background_tokens` background rows at most, so that an interactive request waits for one such
step. After that a step of background rows alone may fill `step_tokens`; it is `interruptible`: the
pass is given up between two layers when an interactive request comes in, and run again later.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from agentmem.engine.kv.manager import KVManager
from agentmem.engine.request import TrafficClass
from agentmem.engine.sequence import Sequence
from agentmem.engine.turns import CLASSES


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a step, in rows, and of what runs at once, in sequences.

    Up to `few_rows` a further row costs little, so that drafts fill a step up to there.
    """

    step_tokens: int = 512
    background_tokens: int = 128
    few_rows: int = 16
    max_running: int = 32
    calm_steps: int = 16


@dataclass(slots=True, eq=False)
class Part:
    """One sequence's rows of a step, from position `start`; drafts are the last ones."""

    sequence: Sequence
    start: int
    known: int
    """Rows of tokens that are certain."""
    drafts: tuple[int, ...] = ()
    found: bool = False
    """The drafts were found in the text; a grammar's own are no matter of luck."""

    @property
    def rows(self) -> int:
        """All rows."""
        return self.known + len(self.drafts)

    @property
    def samples(self) -> bool:
        """It reaches the end of what is known, so that a token can be chosen."""
        return self.start + self.known == len(self.sequence.tokens)

    @property
    def outputs(self) -> int:
        """Rows whose logits are wanted: the last known one, and every draft."""
        return 1 + len(self.drafts) if self.samples else 0


@dataclass(slots=True)
class Step:
    """One forward pass."""

    parts: dict[int, Part] = field(default_factory=dict)
    """By the sequence's number."""
    left: int = 0
    """Rows that may still be added, of any class, ..."""
    background_left: int = 0
    """... and of background sequences."""
    draft_left: int = 0
    interruptible: bool = False

    @property
    def rows(self) -> int:
        """Rows of all parts."""
        return sum(part.rows for part in self.parts.values())

    def room(self, kind: TrafficClass) -> int:
        """Rows that a sequence of this class may still have."""
        return self.left if kind == "interactive" else min(self.left, self.background_left)

    def add(self, part: Part) -> None:
        """Take a sequence's rows in."""
        self.parts[part.sequence.number] = part
        self._spend(part, part.rows)

    def drop(self, sequence: Sequence) -> None:
        """Leave a sequence out again."""
        part = self.parts.pop(sequence.number, None)
        if part is not None:
            self._spend(part, -part.rows)

    def _spend(self, part: Part, rows: int) -> None:
        self.left -= rows
        if part.sequence.traffic_class == "background":
            self.background_left -= rows


class Scheduler:
    """Waiting and running sequences. A step costs the same however many wait.

    `propose` asks a sequence for drafts, so many at most.
    """

    def __init__(
        self,
        kv: KVManager,
        limits: Limits | None = None,
        propose: Callable[[Sequence, int], tuple[tuple[int, ...], bool]] = Sequence.propose,
    ) -> None:
        self.limits = limits or Limits()
        self._propose = propose
        self._kv = kv
        self._waiting: dict[TrafficClass, OrderedDict[int, Sequence]] = {
            kind: OrderedDict() for kind in CLASSES
        }
        self._running: dict[TrafficClass, list[Sequence]] = {kind: [] for kind in CLASSES}
        self._calm = self.limits.calm_steps
        self._blocked: dict[TrafficClass, bool] = dict.fromkeys(CLASSES, False)
        self.preemptions = 0

    def __len__(self) -> int:
        return sum(len(self._waiting[kind]) + len(self._running[kind]) for kind in CLASSES)

    @property
    def leading(self) -> TrafficClass:
        """The class that the next step is for."""
        about = self._waiting["interactive"] or self._running["interactive"]
        return "interactive" if about else "background"

    def waiting(self, kind: TrafficClass) -> int:
        """Sequences of a class that hold nothing."""
        return len(self._waiting[kind])

    def running(self, kind: TrafficClass) -> int:
        """Sequences of a class that hold state."""
        return len(self._running[kind])

    def everything(self) -> list[Sequence]:
        """All sequences, those that run first."""
        running = [s for kind in CLASSES for s in self._running[kind]]
        return running + [s for kind in CLASSES for s in self._waiting[kind].values()]

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence behind those of its class."""
        self._waiting[sequence.traffic_class][sequence.number] = sequence

    def remove(self, sequence: Sequence, keep: bool = True) -> None:
        """Take a sequence out, wherever it is; its blocks stay cached, unless not to be kept."""
        kind = sequence.traffic_class
        if self._waiting[kind].pop(sequence.number, None) is None:
            self._running[kind].remove(sequence)
        if sequence.holding is not None:
            self._kv.close(sequence.holding, keep=keep)
            sequence.holding = None
        self._blocked = dict.fromkeys(CLASSES, False)

    def schedule(self) -> Step:
        """The next step; without parts when nothing can run."""
        step = self._begin()
        for kind in CLASSES:
            for sequence in tuple(self._running[kind]):
                if sequence.pending == 1 and step.room(kind) > 0:
                    self._next_token(step, sequence)
        for kind in CLASSES:
            for sequence in tuple(self._running[kind]):
                if sequence.pending > 1 and step.room(kind) > 0:
                    self._piece(step, sequence)
            while step.room(kind) > 0 and self._admit(step, kind):
                pass
        step.interruptible &= step.rows > self.limits.background_tokens
        return step

    def _begin(self) -> Step:
        limits = self.limits
        alone = self.leading == "background"
        self._calm = self._calm + 1 if alone else 0
        calm = self._calm > limits.calm_steps
        background = limits.step_tokens if calm else limits.background_tokens
        talking = sum(s.pending == 1 for kind in CLASSES for s in self._running[kind])
        return Step(
            left=limits.step_tokens,
            background_left=background,
            draft_left=max(0, limits.few_rows - talking),
            interruptible=alone,
        )

    def _next_token(self, step: Step, sequence: Sequence) -> None:
        """The token that was chosen last, with drafts of what may follow."""
        if sequence.holding is None:
            return
        drafts, found = self._drafts(step, sequence)
        if drafts and not self._kv.grow(sequence.holding, sequence.computed + 1 + len(drafts)):
            drafts = ()
        if self._grow(step, sequence, sequence.computed + 1):
            step.draft_left -= len(drafts)
            step.add(Part(sequence, sequence.computed, 1, drafts, found))

    def _drafts(self, step: Step, sequence: Sequence) -> tuple[tuple[int, ...], bool]:
        most = sequence.max_tokens - sequence.generated - 1
        most = min(most, step.draft_left, step.room(sequence.traffic_class) - 1)
        return self._propose(sequence, most)

    def _piece(self, step: Step, sequence: Sequence) -> bool:
        """As much of the tokens not yet run as fits."""
        if sequence.holding is None:
            return False
        rows = min(sequence.pending, step.room(sequence.traffic_class))
        if not self._grow(step, sequence, sequence.computed + rows):
            return False
        step.add(Part(sequence, sequence.computed, rows))
        return True

    def _grow(self, step: Step, sequence: Sequence, positions: int) -> bool:
        """Blocks up to there, taken from later and lesser sequences if need be."""
        while True:
            if sequence.holding is None:
                return False
            if self._kv.grow(sequence.holding, positions):
                return True
            self._preempt(step, self._last())

    def _last(self) -> Sequence:
        """The running sequence that gives way first: background before interactive, newest."""
        for kind in reversed(CLASSES):
            if self._running[kind]:
                return max(self._running[kind], key=lambda s: s.number)
        raise AssertionError("nothing runs")

    def _preempt(self, step: Step, sequence: Sequence) -> None:
        """Take a sequence's blocks; it comes next of its class, and is computed again."""
        assert sequence.holding is not None
        kind = sequence.traffic_class
        step.drop(sequence)
        self._running[kind].remove(sequence)
        self._kv.close(sequence.holding)
        sequence.holding = None
        sequence.computed = 0
        sequence.costs.preemptions += 1
        self.preemptions += 1
        waiting = self._waiting[kind]
        waiting[sequence.number] = sequence
        waiting.move_to_end(sequence.number, last=False)
        self._blocked[kind] = True

    def _admit(self, step: Step, kind: TrafficClass) -> bool:
        """Start the first that waits; False when none does or it cannot start now."""
        waiting = self._waiting[kind]
        if not waiting or self._blocked[kind]:
            return False
        sequence = next(iter(waiting.values()))
        if not sequence.tokens:
            sequence.tokens = list(sequence.request.prompt)
        if not self._free_place(step, kind) or self._twin(step, sequence):
            return False
        while not self._open(sequence):
            lesser = self._running["background"]
            if kind == "background" or not lesser:
                self._blocked[kind] = True
                return False
            self._preempt(step, self._last())
        del waiting[sequence.number]
        self._running[kind].append(sequence)
        return self._piece(step, sequence)

    def _free_place(self, step: Step, kind: TrafficClass) -> bool:
        """Whether one more may run; the newest background sequence makes way if need be."""
        if sum(len(self._running[k]) for k in CLASSES) < self.limits.max_running:
            return True
        if kind == "background" or not self._running["background"]:
            return False
        self._preempt(step, self._last())
        return True

    def _twin(self, step: Step, sequence: Sequence) -> bool:
        """Whether this step computes a beginning that the sequence could reuse after it."""
        size, tokens, request = self._kv.block_size, sequence.tokens, sequence.request
        if not request.reuse or len(tokens) <= size:
            return False
        for part in step.parts.values():
            other = part.sequence
            if part.known < size or other.request.tenant != request.tenant:
                continue
            stop = min(part.start + part.known, len(tokens) - 1)
            if common(tokens, other.tokens, stop) >= part.start + size:
                return True
        return False

    def _open(self, sequence: Sequence) -> bool:
        """Pin what is cached of it; False when the rest does not fit beside what runs."""
        request, kv = sequence.request, self._kv
        holding = kv.open(
            sequence.tokens,
            tenant=request.tenant,
            session=request.session_id,
            reuse=request.reuse,
        )
        need = -(-(len(sequence.tokens) + 1) // kv.block_size) - holding.cached // kv.block_size
        for pool, spec in zip(kv.pools, kv.specs, strict=True):
            most = need
            if spec.window is not None:
                reach = spec.window + self.limits.step_tokens
                most = min(need, -(-reach // kv.block_size) + 2)
            if pool.available < most:
                kv.close(holding)
                return False
        sequence.holding = holding
        sequence.computed = holding.cached
        if sequence.cached_tokens is None:
            sequence.cached_tokens = sequence.reached = holding.cached
        return True


def common(a: list[int], b: list[int], stop: int) -> int:
    """Length of the shared beginning, `stop` at most."""
    stop = min(stop, len(a), len(b))
    if a[:stop] == b[:stop]:
        return stop
    return next(i for i in range(stop) if a[i] != b[i])
