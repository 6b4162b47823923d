"""The columns that a sequence holds as it advances, and what happens to each."""

from __future__ import annotations

from agentmem.engine.state.rules import running_column


class Columns:
    """Held columns of one sequence: the state it runs from, checkpoints just made, scratch.

    Between steps these are at most 2 + drafts, plus one for each step that `lag` leaves behind.
    Gaps are part of it: nothing here assumes that held columns are neighbours.
    """

    def __init__(self, block: int, drafts: int, column: int = -1) -> None:
        self._block = block
        self._drafts = drafts
        self.column = column
        self.held: set[int] = set() if column < 0 else {column}
        self.relocated = 0
        self.taken = 0
        self.freed = 0

    def advance(self, computed: int, scheduled: int, known: int | None = None) -> None:
        """Make room for a step. `known` of the computed tokens are known to be, where it lags."""
        column = running_column(computed, scheduled, self._block)
        settled = computed if known is None else known
        self._retire((settled - 1) // self._block)
        scratch = [c for c in sorted(self.held) if self.column < c <= self.column + self._drafts]
        wanted = [c for c in range(column, column + 1 + self._drafts) if c not in self.held]
        spare = [c for c in scratch if not column <= c <= column + self._drafts]
        for new in wanted:
            if spare:
                self.held.remove(spare.pop())
                self.relocated += 1
            else:
                self.taken += 1
            self.held.add(new)
        for left in spare:
            self.held.remove(left)
            self.freed += 1
        self.column = column

    def close(self) -> None:
        """Give everything back."""
        self.freed += len(self.held)
        self.held.clear()

    def mask(self) -> list[int]:
        """1 for each held column, from the first one on."""
        return [int(c in self.held) for c in range(max(self.held, default=-1) + 1)]

    def _retire(self, first: int) -> None:
        """Free what lies before column `first`, over any gap."""
        gone = {column for column in self.held if column < first}
        self.held -= gone
        self.freed += len(gone)
