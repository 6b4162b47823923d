"""How a worker can fail, and what it said last."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from agentmem.errors import MemorySystemError

FailureKind = Literal["died", "timeout", "raised", "protocol"]
_TAIL_BYTES = 4096


class WorkerFailure(MemorySystemError):  # noqa: N818 (a Failure on record, by contract)
    """One verb failed. After "raised" the worker lives on; otherwise it is gone and restartable."""

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        last_output: str | None = None,
        traceback: str | None = None,
    ) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind: FailureKind = kind
        self.message = message
        self.last_output = last_output
        self.traceback = traceback


def tail(log: Path, size_bytes: int = _TAIL_BYTES) -> str | None:
    """Last output in a log file; None when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - size_bytes))
            text = file.read().decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return None
    return text or None
