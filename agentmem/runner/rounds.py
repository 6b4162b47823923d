"""Who comes when: every system on every history, as often as the profile says (R8, R10)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentmem.profile import Profile
from agentmem.runner.resume import safe
from agentmem.sandbox.specs import SystemSpec

WARM = "warm"
"""Suffix of the pass that fills a warm cache and is not measured."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One system on one history, one time round: one scope, one store."""

    system: str
    history: str
    repeat: int = 0
    measured: bool = True
    """False for the pass before the repeats that fills a warm cache; booked as set-up."""

    @property
    def suffix(self) -> str:
        if not self.measured:
            return f".{WARM}"
        return f".r{self.repeat}" if self.repeat else ""

    @property
    def scope(self) -> str:
        """The scope's name in the gateway URL."""
        return f"{safe(self.system)}.{safe(self.history)}{self.suffix}"

    @property
    def folder(self) -> str:
        """Name of the history's folder among stores, snapshots and logs."""
        return f"{self.history}{self.suffix}"

    def tenant(self, profile: Profile, run_id: str) -> str:
        """Whose caches these are: never another system's, and cold: no other repeat's."""
        shared = profile.run.cache == "warm" or self.repeat == 0
        return f"{run_id}:{self.system}" + ("" if shared else f":r{self.repeat}")


def orders(profile: Profile, names: Sequence[str], blocks: int) -> list[list[str]]:
    """Running order of the systems in each block, by `run.order`."""
    listed = list(names)
    if profile.run.order == "shuffled":
        draw = random.Random(profile.run.seed)
        return [draw.sample(listed, len(listed)) for _ in range(blocks)]
    if profile.run.order == "counterbalanced":
        return [listed[::-1] if block % 2 else listed for block in range(blocks)]
    return [listed] * blocks


def turns(profile: Profile, names: Sequence[str], histories: Sequence[str]) -> list[Turn]:
    """All turns in running order. Repeats of all systems are interleaved.

    A block is a repeat; counterbalanced, each history of a repeat is one, so that the order turns
    round within a repeat, too.
    """
    repeats = range(profile.run.repeats)
    found: list[Turn] = []
    if profile.run.cache == "warm":
        found = [Turn(name, h, 0, False) for name in names for h in histories]
    if profile.run.order == "counterbalanced":
        blocks = [(r, [h]) for r in repeats for h in histories]
    else:
        blocks = [(r, list(histories)) for r in repeats]
    each = orders(profile, names, len(blocks))
    for (repeat, inside), order in zip(blocks, each, strict=True):
        found += [Turn(name, h, repeat) for name in order for h in inside]
    return found


def overlaps(profile: Profile, spec: SystemSpec) -> bool:
    """Questions are asked of this system while it constructs."""
    return profile.run.overlap and spec.overlap


def answers_natively(profile: Profile, spec: SystemSpec) -> bool:
    """This system answers in its own loop, not the reader from what it retrieves."""
    return spec.native_answer and profile.answer.lane == "native"


def describe(
    profile: Profile, specs: Sequence[SystemSpec], histories: Sequence[str]
) -> dict[str, Any]:
    """The manifest's entries on how the systems were run."""
    rows = turns(profile, [s.name for s in specs], histories)
    return {
        "schedule": [[t.system, t.history, t.repeat if t.measured else WARM] for t in rows],
        "cache": profile.run.cache,
        "lanes": {
            s.name: {
                "answers": "native" if answers_natively(profile, s) else "harness",
                "overlap": overlaps(profile, s),
            }
            for s in specs
        },
    }
