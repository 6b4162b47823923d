"""What the command line adds to a profile."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ReplayMode = Literal["at-once", "through-engine"]
"""at-once: recorded replies as they are, no model. through-engine: an engine is made to produce
the recorded tokens, so that a reply costs what it costs there."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Where a run goes and who answers. Of these only `replay` and its mode are its identity."""

    out: Path | None = None
    capture: bool = False
    port: int = 0
    """Gateway port; 0 lets the system choose."""
    record: Path | None = None
    """Keep every model reply in this file."""
    replay: Path | None = None
    """Take every model reply from this file."""
    replay_mode: ReplayMode = "at-once"
