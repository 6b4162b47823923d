"""Progress of one download or build, a line per step."""

from __future__ import annotations

from collections.abc import Callable


def sayer() -> Callable[[str, float], None]:
    """Callback that prints what is being done, once per step and not per fraction."""
    last: list[str] = [""]

    def say(what: str, part: float) -> None:
        if what != last[0]:
            last[0] = what
            print(f"  {what}", flush=True)

    return say
