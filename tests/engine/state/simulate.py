"""Scheduling with drafts, simulated from what each column holds, not from the rules.

Columns hold token offsets. A step needs the state at `computed` in its running column; it looks
for where that is. Afterwards a boundary that the step kept must be found in its column.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Step:
    """Start, scheduled, precopy and postcopy as (source of the recurrent state, target)."""

    start: int
    scheduled: int
    before: tuple[int, int] | None
    after: tuple[int, int] | None


@dataclass
class Machine:
    block: int
    states: dict[int, int] = field(default_factory=dict)
    """Column -> tokens of the recurrent state in it."""
    window: tuple[int, int] | None = None
    """Column of the window, and the offset it begins at."""
    computed: int = 0
    steps: list[Step] = field(default_factory=list)
    boundaries: dict[int, int] = field(default_factory=dict)
    """Column -> offset, as hashes would claim."""

    def holder(self, tokens: int, near: int) -> int:
        """The column, at `near` or behind it, whose state ends at `tokens`."""
        return min(c for c, t in self.states.items() if t == tokens and c >= near)

    def run(self, scheduled: int, drafts: int, accepted: int) -> None:
        start, block = self.computed, self.block
        column = 0
        while (column + 1) * block < start + scheduled:
            column += 1
        before = None
        if self.window is not None and self.window[0] != column:
            source = self.holder(start, self.window[0])
            before = (source, column)
            self.states[column], self.window = start, (column, start)
        if start:
            assert self.holder(start, column if before else self.window[0]) is not None
        first = start + scheduled - drafts
        for draft in range(drafts + 1):
            self.states[column + draft] = first + draft
        self.window = (column, first)
        self.computed = first + accepted - 1
        after = None
        kept = range(first, self.computed + 1)
        hit = [t for t in kept if t % block == 0 and t > 0]
        if hit:
            target = hit[-1] // block - 1
            source = self.holder(hit[-1], column)
            if (source, self.window[1]) != (target, hit[-1]) or target != column:
                after = (source, target)
            self.states[target] = hit[-1]
            self.boundaries[target] = hit[-1]
            if target == column:
                self.window = (column, hit[-1])
        self.steps.append(Step(start, scheduled, before, after))
