"""Live progress on a terminal; plain lines where output is not one."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from agentmem.cli.say import plain


class Live:
    """Shows system, phase, units done, tokens so far and time left for the phase.

    On a pipe or in CI it prints one line per phase instead of redrawing.
    """

    def __init__(self, enabled: bool = True) -> None:
        self._console = Console(stderr=True)
        self._enabled = enabled
        self._bars = enabled and self._console.is_terminal
        self._progress = Progress(
            TextColumn("{task.fields[system]:>15}"),
            TextColumn("{task.fields[phase]:<12}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[tokens]:>16} tok"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._bars,
        )
        self._task: TaskID | None = None
        self._total = 0
        self._tokens = [0, 0]
        self._start = time.monotonic()

    def __enter__(self) -> Live:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._progress.stop()

    def note(self, text: str) -> None:
        """Print a line above the bars."""
        if self._enabled:
            self._progress.console.print(
                f"  {plain(text)}", style="dim", highlight=False, markup=False, soft_wrap=True
            )

    def begin(self, system: str, phase: str, total: int) -> None:
        """Start a bar (or, without a terminal, print a line when the phase ends)."""
        self._tokens, self._total, self._start = [0, 0], total, time.monotonic()
        self._task = self._progress.add_task(
            "", total=total, system=system, phase=phase, tokens="0"
        )

    def step(self, system: str, phase: str, done: int) -> None:
        """Advance the bar."""
        if self._task is not None:
            self._progress.update(self._task, completed=done)
        if self._enabled and not self._bars and done == self._total:
            took = time.monotonic() - self._start
            self.note(
                f"{system}: {phase} {done}/{self._total}, {self._count()} tokens, {took:.1f} s"
            )

    def tokens(self, input_tokens: int, output_tokens: int) -> None:
        """Add a finished call's tokens."""
        self._tokens[0] += input_tokens
        self._tokens[1] += output_tokens
        if self._task is not None:
            self._progress.update(self._task, tokens=self._count())

    def _count(self) -> str:
        return f"{self._tokens[0]:,} + {self._tokens[1]:,}"
