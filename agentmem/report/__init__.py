"""Reports of finished runs: one HTML file, Markdown, a CSV per table, a PNG per figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ReportPaths:
    """Where the parts of a report lie."""

    html: Path
    markdown: Path
    csv: tuple[Path, ...]
    png: tuple[Path, ...]


def build(run_dirs: Sequence[str | Path], out: str | Path) -> ReportPaths:
    """Write the report of one or several runs into folder `out`.

    DataError for a run that cannot be read, UsageError for one given twice and for a folder that
    cannot be written.
    """
    from agentmem.report.write import build_report  # matplotlib only when a report is made

    return build_report([Path(d) for d in run_dirs], Path(out))
