"""Groups of short columns laid side by side as far as a terminal is wide, the rest below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

GAP, BETWEEN = "  ", "    "
"""Space between columns and between groups."""
NAME_LIMIT = 24
"""Characters shown of a row's name; figures are never cut."""


@dataclass(frozen=True, slots=True)
class Group:
    """Columns that belong together; cells[i] is row i, one string per column."""

    title: str
    columns: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]

    @property
    def widths(self) -> list[int]:
        rows = (self.columns, *self.cells)
        widths = [max(len(row[i]) for row in rows) for i in range(len(self.columns))]
        short = len(self.title) - self._joined(widths)
        return [widths[0] + max(0, short), *widths[1:]]

    @property
    def width(self) -> int:
        return self._joined(self.widths)

    def _joined(self, widths: Sequence[int]) -> int:
        return sum(widths) + len(GAP) * (len(widths) - 1)

    def line(self, cells: Sequence[str]) -> str:
        return GAP.join(cell.rjust(w) for cell, w in zip(cells, self.widths, strict=True))


@dataclass(frozen=True, slots=True)
class Blocks:
    """Rows with the same names in every group; prints as many groups side by side as fit."""

    names: tuple[str, ...]
    styles: tuple[str, ...]
    groups: tuple[Group, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for i, groups in enumerate(self.packed(options.max_width)):
            if i:
                yield Text()
            yield from self._block(groups)

    @property
    def name_width(self) -> int:
        return min(NAME_LIMIT, max((len(n) for n in self.names), default=0))

    def packed(self, width: int) -> list[list[Group]]:
        """Groups in order, cut into rows of at most `width` characters where that is possible."""
        rows: list[list[Group]] = []
        used = 0
        for group in self.groups:
            if rows and used + len(BETWEEN) + group.width <= width:
                rows[-1].append(group)
                used += len(BETWEEN) + group.width
            else:
                rows.append([group])
                used = self.name_width + len(GAP) + group.width
        return rows

    def _block(self, groups: Sequence[Group]) -> Iterator[Text]:
        indent = " " * self.name_width + GAP
        titles = BETWEEN.join(f" {g.title} ".center(g.width, "─")[: g.width] for g in groups)
        heads = BETWEEN.join(g.line(g.columns) for g in groups)
        if any(g.title for g in groups):
            yield _line(indent + titles, "cyan")
        yield _line(indent + heads, "bold")
        for i, (name, style) in enumerate(zip(self.names, self.styles, strict=True)):
            shown = name if len(name) <= NAME_LIMIT else name[: NAME_LIMIT - 1] + "…"
            cells = BETWEEN.join(g.line(g.cells[i]) for g in groups)
            yield _line(shown.ljust(self.name_width) + GAP + cells, style)


def _line(text: str, style: str) -> Text:
    return Text(text.rstrip(), style=style, no_wrap=True, overflow="ignore")
