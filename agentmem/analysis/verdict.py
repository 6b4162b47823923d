"""What a check is: an examination of a run, and the verdict it leads to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agentmem.analysis.load import Run


@dataclass(frozen=True, slots=True)
class Check:
    """Verdict on one rule. `ok` is None where a run folder alone cannot show it."""

    rule: str
    title: str
    ok: bool | None
    detail: str


@dataclass(frozen=True, slots=True)
class Found:
    """What a rule's examination turned up: faults, and what was looked at when there are none."""

    faults: tuple[str, ...]
    looked_at: str
    provable: bool = True


Examine = Callable[[Run], Found]
