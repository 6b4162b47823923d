"""The report as Markdown, for a repository or a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from agentmem.report.content import Content, RunContent
from agentmem.report.figures import Drawing
from agentmem.report.sheet import Sheet


def markdown(content: Content, drawings: Sequence[Drawing]) -> str:
    """The whole report but the single answers, which are in the HTML page."""
    return "\n".join(_lines(content, drawings)) + "\n"


def _lines(content: Content, drawings: Sequence[Drawing]) -> Iterator[str]:
    yield f"# agentmem report: {', '.join(plain(r.label) for r in content.runs)}\n"
    for entry in content.runs:
        if len(content.runs) > 1:
            yield f"Run {content.letters[entry.label]}: {plain(entry.label)}\n"
        yield from _opening(entry)
    figures = {d.key: d for d in drawings}
    after = {
        "t3_end_to_end": ("f3_phases", "f4_energy", "tokens"),
        "wall_states": ("walls",),
        "f2_tradeoff": ("f2_tradeoff",),
    }
    for sheet in content.sheets:
        yield from table_lines(sheet)
        for key in after.get(sheet.key, ()):
            if key in figures:
                yield from figure_lines(figures[key])
    yield "## Accounts\n"
    for entry in content.runs:
        yield from (f"- {line}" for line in entry.conservation)
        yield f"- {entry.unattributed}"
    yield "\n## About this run\n"
    for entry in content.runs:
        yield from (f"- {name}: {plain(value)}" for name, value in entry.facts)


def _opening(entry: RunContent) -> Iterator[str]:
    yield f"**{plain(entry.headline)}**\n"
    yield from (f"- {plain(sentence)}" for sentence in entry.reading)
    yield ""
    yield from (f"> {plain(warning)}\n" for warning in entry.warnings)
    yield f"{plain(entry.small_model)}\n"
    yield f"{plain(entry.energy)}\n"


def table_lines(sheet: Sheet) -> Iterator[str]:
    """A sheet as a Markdown table."""
    yield f"## {sheet.heading}\n"
    if sheet.rows:
        yield "| " + " | ".join(c.heading for c in sheet.columns) + " |"
        yield "|" + "|".join("---:" if c.number else "---" for c in sheet.columns) + "|"
        yield from ("| " + " | ".join(map(plain, row)) + " |" for row in sheet.rows)
    else:
        yield "None."
    yield f"\n{sheet.note}\n"


def figure_lines(drawing: Drawing) -> Iterator[str]:
    """A figure with its caption."""
    yield f"![{drawing.heading}](figures/{drawing.key}.png)\n"
    yield f"*{drawing.caption}*\n"


_SPECIAL = re.compile(r"([\\`*_\[\]|#])")


def plain(text: str) -> str:
    """Run data as inert Markdown: one line, no markup, no HTML."""
    flat = " ".join(text.split())
    flat = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", flat)
