"""The files of a comparison: one HTML page, Markdown, a CSV per table, a PNG per figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import agentmem
from agentmem.analysis.compare import Comparison, letter
from agentmem.analysis.compare_rules import Outcome
from agentmem.errors import UsageError
from agentmem.report import ReportPaths, compare_sheets
from agentmem.report import compare_words as words
from agentmem.report.content import Content, gather
from agentmem.report.figures import TRADEOFF, Drawing, Plot, drawing
from agentmem.report.html import render
from agentmem.report.inert import cells, visible
from agentmem.report.markdown import figure_lines, plain, table_lines
from agentmem.report.plots import changes
from agentmem.report.sheet import Sheet


def write(comparison: Comparison, outcomes: Sequence[Outcome], out: Path) -> ReportPaths:
    """Write the comparison into folder `out`; UsageError where that cannot be done."""
    _folders(out)
    # Repeats of a side share its letter; the first of them stands for it in the overviews.
    content = gather([side.runs[0] for side in comparison.sides])
    sheets = _sheets(comparison, outcomes, content)
    drawings = tuple(drawing(plot, content) for plot in _plots(comparison))
    names = [f"{letter(i)}: {side.name}" for i, side in enumerate(comparison.sides)]
    tallies = {a: words.tally(comparison, a) for a in comparison.facts}
    page = render(
        "compare.html.j2",
        content=content,
        names=names,
        tallies=tallies,
        sheets=sheets,
        figures={d.key: d for d in drawings},
        version=agentmem.__version__,
    )
    text = "\n".join(_markdown(names, tallies, sheets, drawings)) + "\n"
    try:
        return _files(out, visible(page), visible(text), sheets, drawings)
    except OSError as error:
        raise _unwritable(out, error) from error


def _unwritable(out: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot write the comparison to {out}: {error.strerror}")


def _folders(out: Path) -> None:
    """Made before the work, so that a place that cannot be written costs no time."""
    try:
        for part in ("tables", "figures"):
            (out / part).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(out, error) from error


def _sheets(
    comparison: Comparison, outcomes: Sequence[Outcome], content: Content
) -> tuple[Sheet, ...]:
    judged = [compare_sheets.verdicts(comparison, against) for against in comparison.facts]
    asked = [compare_sheets.conditions(outcomes)] if outcomes else []
    overview = [content.sheet(key) for key in ("t3_end_to_end", "f2_tradeoff")]
    return (*asked, *judged, compare_sheets.differs(comparison), *overview)


def _plots(comparison: Comparison) -> list[Plot]:
    return [*(_changes(comparison, against) for against in comparison.facts), TRADEOFF]


def _changes(comparison: Comparison, against: str) -> Plot:
    return Plot(
        f"changes_{against}",
        f"Changes, {against} against A",
        lambda figure, _content, theme: changes.draw(figure, comparison, against, theme),
        lambda _content: changes.caption(comparison, against),
    )


def _markdown(
    names: Sequence[str],
    tallies: dict[str, str],
    sheets: Sequence[Sheet],
    drawings: Sequence[Drawing],
) -> list[str]:
    lines = [f"# agentmem comparison of {len(names)} sides\n"]
    lines += [f"- {plain(name)}" for name in names]
    lines += ["", *(f"**{a} against A: {tally}**\n" for a, tally in tallies.items())]
    for figure in drawings:
        lines += figure_lines(figure)
    for sheet in sheets:
        lines += table_lines(sheet)
    return lines


def _files(
    out: Path, page: str, text: str, sheets: Sequence[Sheet], drawings: Sequence[Drawing]
) -> ReportPaths:
    csvs = tuple(out / "tables" / f"{sheet.key}.csv" for sheet in sheets)
    for path, sheet in zip(csvs, sheets, strict=True):
        cells(sheet.frame).to_csv(path, index=False)
    pngs = tuple(out / "figures" / f"{d.key}.png" for d in drawings)
    for path, figure in zip(pngs, drawings, strict=True):
        path.write_bytes(figure.png)
    html, markdown = out / "compare.html", out / "compare.md"
    html.write_text(page, encoding="utf-8")
    markdown.write_text(text, encoding="utf-8")
    return ReportPaths(html, markdown, csvs, pngs)
