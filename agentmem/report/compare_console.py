"""A comparison in a terminal of eighty columns: what differs, then what stayed the same."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agentmem.analysis.compare import Comparison, Line, letter
from agentmem.report import compare_words as words

SHORT = {"no difference shown": "no diff."}
STYLES = {"worse": "bold red", "better": "bold green", "no difference shown": "dim"}
MAX_FACTS = 12


def comparison_table(comparison: Comparison, everything: bool = False) -> RenderableType:
    """All sides against A; `everything` prints also quantities that are seldom looked at."""
    parts: list[RenderableType] = [
        Text(f"{letter(i)}  {side.name}", style="bold", overflow="fold")
        for i, side in enumerate(comparison.sides)
    ]
    for against in comparison.facts:
        parts += _facts(comparison, against)
        lines = [x for x in comparison.lines if x.against == against]
        for system in dict.fromkeys(x.system for x in lines):
            mine = [x for x in lines if x.system == system and (everything or _shown(x))]
            parts += _system(mine, against)
        parts += [Text(), Text(f"{against} against A: {words.tally(comparison, against)}", "bold")]
    return Group(
        *parts, Text("no diff.: no difference shown. " + words.terms(comparison), style="dim")
    )


def _shown(line: Line) -> bool:
    return line.metric.headline or line.judged.verdict in ("better", "worse")


def _facts(comparison: Comparison, against: str) -> list[RenderableType]:
    facts = comparison.facts[against]
    lines: list[RenderableType] = [
        Text(f"   {'!' if f.blocks else ' '} {f}", style="yellow" if f.blocks else "dim")
        for f in facts[:MAX_FACTS]
    ]
    if len(facts) > MAX_FACTS:
        lines.append(Text(f"     and {len(facts) - MAX_FACTS} more", style="dim"))
    head = "differs (A / " + against + "; ! forbids a comparison):"
    return [Text(head, style="dim"), *lines] if facts else []


def _system(lines: Sequence[Line], against: str) -> list[RenderableType]:
    if not lines:
        return []
    parts: list[RenderableType] = [Text(), Text(f"{lines[0].title}, {against} against A", "bold")]
    table = [x for x in lines if x.judged.verdict not in ("equal", "not comparable")]
    if table:
        parts.append(_table(table, against))
    same = [x for x in lines if x.judged.verdict == "equal"]
    if same:
        pairs = sorted({x.judged.pairs for x in same})
        over = f"{pairs[0]}" if len(pairs) == 1 else f"{pairs[0]} to {pairs[-1]}"
        parts.append(Text(f"equal in all pairs ({over}): {_named(same)}", style="green"))
    for why in dict.fromkeys(x.judged.note for x in lines if x.judged.verdict == "not comparable"):
        barred = [x for x in lines if x.judged.verdict == "not comparable" and x.judged.note == why]
        parts.append(Text(f"not comparable: {_named(barred)}: {why}", style="yellow"))
    return parts


def _named(lines: Sequence[Line]) -> str:
    rooms = dict.fromkeys(x.metric.room for x in lines)
    parts = (
        f"{room} {', '.join(x.metric.name for x in lines if x.metric.room == room)}"
        for room in rooms
    )
    return "; ".join(parts)


def _table(lines: Sequence[Line], against: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    heads = ("phase", "quantity", "A", against, "change", "interval, %", "pairs", "verdict")
    for i, head in enumerate(heads):
        table.add_column(head, justify="left" if i in (0, 1, 7) else "right", no_wrap=True)
    last = ""
    for line in lines:
        judged, room = line.judged, line.metric.room
        cells = (
            "" if room == last else room,
            line.metric.name,
            words.amount(line, "a"),
            words.amount(line, "b"),
            words.change(line),
            words.span(line),
            str(judged.pairs) + (f"-{judged.left_out}" if judged.left_out else ""),
            SHORT.get(judged.verdict, judged.verdict),
        )
        table.add_row(*(Text(c, style=STYLES.get(judged.verdict, "")) for c in cells))
        last = room
    return table
