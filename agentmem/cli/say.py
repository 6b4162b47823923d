"""Lines for a terminal: progress of a download or build, and text that came from elsewhere."""

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


def plain(text: str) -> str:
    """One line without control characters: what upstreams say may hold terminal commands."""
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
