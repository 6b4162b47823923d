"""Rows of the fault table, in Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass

HEAD = ("where", "fault", "what happened", "exit", "lost", "line printed")


@dataclass(frozen=True, slots=True)
class Entry:
    """One trial."""

    where: str
    fault: str
    happened: str
    code: str
    lost: str
    line: str


ROWS: list[Entry] = []


def add(where: str, fault: str, happened: str, code: object, lost: str, line: str) -> None:
    ROWS.append(Entry(where, fault, happened, str(code), lost, line))


def table() -> Iterator[str]:
    yield "| " + " | ".join(HEAD) + " |"
    yield "|" + "---|" * len(HEAD)
    for row in ROWS:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in astuple(row)) + " |"
