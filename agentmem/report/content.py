"""Everything a report says, gathered once: HTML, Markdown and figures only lay it out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentmem.analysis import tables
from agentmem.analysis.conserve import Conservation, conservation, unattributed_line
from agentmem.analysis.load import Run
from agentmem.analysis.repeats import mean_end_to_end
from agentmem.report import format as fmt
from agentmem.report import notices, sheets, words
from agentmem.report.answers import Asked, asked
from agentmem.report.sheet import Sheet
from agentmem.report.style import system_colours


@dataclass(frozen=True, slots=True)
class RunContent:
    """What is said about one run."""

    label: str
    run: Run
    headline: str
    reading: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    """Machine, model and identity: name and value."""
    conservation: tuple[Conservation, ...]
    unattributed: str
    questions: tuple[Asked, ...]
    small_model: str
    energy: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Content:
    """A whole report."""

    runs: tuple[RunContent, ...]
    sheets: tuple[Sheet, ...]
    colours: dict[str, str]
    """By system name and by printed title."""

    @property
    def letters(self) -> dict[str, str]:
        """Short name of each run by its label, for tables and figures over several runs."""
        return {entry.label: fmt.letter(i) for i, entry in enumerate(self.runs)}

    def sheet(self, key: str) -> Sheet:
        return next(s for s in self.sheets if s.key == key)

    @property
    def labelled(self) -> tuple[tuple[str, Run], ...]:
        return tuple((r.label, r.run) for r in self.runs)


def gather(runs: Sequence[Run]) -> Content:
    """Content of a report over one or several runs."""
    labelled = list(zip(labels(runs), runs, strict=True))
    names = list(dict.fromkeys(s for run in runs for s in run.systems))
    colours = system_colours(names)
    for run in runs:
        colours |= {tables.title(run, s): colours[s] for s in run.systems}
    return Content(
        runs=tuple(_one(label, run) for label, run in labelled),
        sheets=tuple(make(labelled) for make in sheets.ALL),
        colours=colours,
    )


def labels(runs: Sequence[Run]) -> list[str]:
    """A distinct label per run: its name, with the folder's where names repeat."""
    names = [run.name for run in runs]
    return [
        name if names.count(name) == 1 else f"{name} ({i + 1}: {run.folder.name})"
        for i, (name, run) in enumerate(zip(names, runs, strict=True))
    ]


def _one(label: str, run: Run) -> RunContent:
    t3: list[dict[str, Any]] = mean_end_to_end(run).to_dict("records")  # type: ignore[assignment]
    return RunContent(
        label=label,
        run=run,
        headline=words.headline(run),
        reading=words.reading(run, t3),
        facts=words.facts(run),
        conservation=conservation(run.phases, run.journal),
        unattributed=unattributed_line(run.phases),
        questions=asked(run),
        small_model=words.small_model(run, t3),
        energy=words.energy(run, t3),
        warnings=notices.warnings(run),
    )
