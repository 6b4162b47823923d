"""What is seen: progress with the time left, a line for each row, the table at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

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
from rich.table import Table

from benchmarks.engine_parts.rows import MISSING, Row


class Screen:
    """Progress over all jobs of a run; rows are shown as they come."""

    def __init__(self, console: Console | None = None) -> None:
        plain = Console()
        # a file or a pipe has no width of its own
        self.console = console or (plain if plain.is_terminal else Console(width=150))
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            # jobs differ in length: the time left is told from many of them
            speed_estimate_period=900,
        )
        self._task: TaskID | None = None
        self.jobs = 0
        """Jobs that are over."""

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def expect(self, jobs: int) -> None:
        """How many jobs there will be in all."""
        if self._task is None:
            self._task = self._progress.add_task("starting", total=jobs)
        else:
            self._progress.update(self._task, total=jobs)

    def doing(self, what: str) -> None:
        """What is done now."""
        if self._task is not None:
            self._progress.update(self._task, description=what)

    def done(self, jobs: int = 1) -> None:
        """So many jobs are over, or will not come."""
        self.jobs += jobs
        if self._task is not None:
            self._progress.advance(self._task, jobs)

    def say(self, text: str) -> None:
        """A line above the bar."""
        self.console.print(text, highlight=False)

    def row(self, row: Row) -> None:
        """A row in one line."""
        self.say(f"{row.model}  {row.work}  {row.mode}: {in_words(row)}")


def in_words(row: Row) -> str:
    """A row's figures as a sentence."""
    if row.status == MISSING:
        return f"[yellow]{MISSING}[/]: {row.reason}"
    ours = f"ours {number(row.ours)} {row.unit}"
    if row.ratio is None:
        return f"{ours}; {row.reason}"
    goal = "" if row.target is None else f", target {row.target:g} {mark(row)}"
    return f"{ours}, {row.peer} {number(row.best_peer)}: [bold]{row.ratio:.2f}[/]{goal}"


def tables(rows: Sequence[Row]) -> Iterator[Table]:
    """A table for each model. Every ratio: higher is better."""
    for model in dict.fromkeys(row.model for row in rows):
        yield table(model, [row for row in rows if row.model == model])


def table(model: str, rows: Sequence[Row]) -> Table:
    """All rows of a model."""
    threads = next((row.threads for row in rows if row.threads), None)
    title = f"{model}, {threads or '?'} threads; every ratio: higher is better"
    shown = Table(title=title, title_justify="left")
    shown.add_column("work", min_width=24)
    for name in ("mode", "kernels", "KV"):
        shown.add_column(name)
    for name in ("ppl loss", "ours", "±"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("best other", min_width=24)
    for name in ("ratio", "target"):
        shown.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        loss = "" if row.perplexity_loss is None else f"{row.perplexity_loss:+.2%}"
        head = (row.work, row.mode, row.backend or "", row.kv or "", loss)
        if row.status == MISSING:
            shown.add_row(*head, f"[yellow]{MISSING}[/]", "", row.reason, "", goal(row))
            continue
        best = "" if row.peer is None else f"{number(row.best_peer)} {row.peer}"
        wide = "" if row.spread is None else f"{row.spread:.0%}"
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        ours = f"{number(row.ours)} {row.unit}"
        shown.add_row(*head, ours, wide, best or row.reason, ratio, goal(row))
    return shown


def goal(row: Row) -> str:
    """The target, and whether it is reached."""
    return "" if row.target is None else f"{row.target:g} {mark(row)}"


def mark(row: Row) -> str:
    """In a word."""
    return {True: "[green]met[/]", False: "[red]below[/]", None: ""}[row.met]


def number(value: float | None) -> str:
    """Three figures that count."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def machine_line(facts: dict[str, Any]) -> str:
    """The machine in a line."""
    told = f"{facts['processor']} ({facts['family_model']}), {facts['cores']} cores"
    return f"{told}, {facts['memory_gib']} GiB, huge pages: {facts['huge_pages']}"
