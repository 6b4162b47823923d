"""Changes planted into the rows of a synthetic run."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from agentmem.records import Call, Query, Row, Window

Doctor = Callable[[list[Row]], list[Row]]


def slower(phase: str, factor: float, system: str | None = None) -> Doctor:
    """One phase takes `factor` as long, in windows, calls and questions alike."""

    def change(row: Row) -> Row:
        if system not in (None, getattr(row, "system", None)):
            return row
        if isinstance(row, Window) and row.phase == phase:
            busy = row.end_s - row.start_s - row.quiet_s
            return replace(row, end_s=row.start_s + row.quiet_s + busy * factor)
        if isinstance(row, Query) and phase in ("retrieval", "generation"):
            seconds = getattr(row, f"{phase}_s")
            return replace(row, **{f"{phase}_s": seconds and seconds * factor})
        return row

    return lambda rows: [change(row) for row in rows]


def noisy(seed: int, spread: float) -> Doctor:
    """Every window and question with a noise of its own, `spread` relative."""

    def doctor(rows: list[Row]) -> list[Row]:
        rng = random.Random(seed)
        return [_jittered(row, rng, spread) for row in rows]

    return doctor


def _jittered(row: Row, rng: random.Random, spread: float) -> Row:
    factor = rng.lognormvariate(0, spread)
    if isinstance(row, Window):
        busy = row.end_s - row.start_s - row.quiet_s
        return replace(row, end_s=row.start_s + row.quiet_s + busy * factor)
    if isinstance(row, Query):
        found = row.retrieval_s
        return replace(
            row,
            generation_s=(row.generation_s or 0.0) * factor,
            retrieval_s=None if found is None else found * factor,
        )
    return row


def wordier(system: str, phase: str, tokens: int) -> Doctor:
    """Each successful chat call of a phase writes so many tokens more."""

    def change(row: Row) -> Row:
        mine = isinstance(row, Call) and (row.system, row.phase) == (system, phase)
        if not mine or not isinstance(row, Call) or row.output_tokens is None:
            return row
        return replace(row, output_tokens=row.output_tokens + tokens)

    return lambda rows: [change(row) for row in rows]


def without(system: str) -> Doctor:
    return lambda rows: [row for row in rows if getattr(row, "system", None) != system]


def both(*doctors: Doctor) -> Doctor:
    def doctor(rows: list[Row]) -> list[Row]:
        for one in doctors:
            rows = one(rows)
        return rows

    return doctor
