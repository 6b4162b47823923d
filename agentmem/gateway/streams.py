"""Server-sent events: cut a byte stream into whole events as they arrive."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

_END = re.compile(rb"\r?\n\r?\n")
DONE = b"[DONE]"


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its bytes with the blank line that ends it, and its data lines."""

    raw: bytes
    data: bytes

    @property
    def done(self) -> bool:
        return self.data == DONE

    def json(self) -> dict[str, Any] | None:
        """The data as a JSON object; None for comments, `[DONE]` and anything else."""
        if not self.data.startswith(b"{"):
            return None
        try:
            value = json.loads(self.data)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None


class EventSplitter:
    """Feed bytes, get the events they complete; `rest` is the unfinished tail."""

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, chunk: bytes) -> list[Event]:
        self.rest += chunk
        events, start = [], 0
        for end in _END.finditer(self.rest):
            events.append(parse_event(self.rest[start : end.end()]))
            start = end.end()
        self.rest = self.rest[start:]
        return events


def parse_event(raw: bytes) -> Event:
    lines = (line for line in raw.splitlines() if line.startswith(b"data:"))
    return Event(raw, b"\n".join(line[5:].removeprefix(b" ") for line in lines))


def is_usage_only(event: dict[str, Any] | None) -> bool:
    """The extra last chunk that `include_usage` adds: no choices, but usage."""
    return event is not None and event.get("choices") == [] and event.get("usage") is not None
