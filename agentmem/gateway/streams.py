"""Server-sent events: cut a byte stream into events, and see in passing how far it has come."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from agentmem.gateway.replies import Reply

_END = re.compile(rb"\r?\n\r?\n")
_FINISH = re.compile(rb'"finish_reason"\s*:\s*"')
_ENDED = re.compile(rb'"type"\s*:\s*"response\.(?:completed|incomplete|failed)"')
_DONE = b"[DONE]"


class Event(NamedTuple):
    """One event: its bytes with the blank line that ends it, and its data."""

    raw: bytes
    data: bytes

    def json(self) -> dict[str, Any] | None:
        """The data as a JSON object; None for comments, `[DONE]` and anything else."""
        if not self.data.startswith(b"{"):
            return None
        try:
            value = json.loads(self.data)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None


class EventSplitter:
    """Feed bytes, get the events they complete; `rest` is the unfinished tail."""

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, chunk: bytes) -> list[Event]:
        text = self.rest + chunk
        if b"\r" not in text:  # as nearly all servers write
            *whole, self.rest = text.split(b"\n\n")
            return [parse_event(raw + b"\n\n") for raw in whole]
        events, start = [], 0
        for end in _END.finditer(text):
            events.append(parse_event(text[start : end.end()]))
            start = end.end()
        self.rest = text[start:]
        return events


def parse_event(raw: bytes) -> Event:
    body = raw.strip(b"\r\n")
    if b"\n" not in body and body.startswith(b"data:"):
        return Event(raw, body[5:].lstrip(b" "))
    lines = (line for line in body.splitlines() if line.startswith(b"data:"))
    return Event(raw, b"\n".join(line[5:].removeprefix(b" ") for line in lines))


def is_usage_only(event: Event) -> bool:
    """The extra last chunk that `include_usage` adds: no choices, but usage."""
    if b'"usage"' not in event.data:  # spares the parsing of nearly every event
        return False
    data = event.json() or {}
    return data.get("choices") == [] and data.get("usage") is not None


class Progress:
    """What must be known while a stream runs; reading it in full is left for later."""

    def __init__(self, answers: int) -> None:
        self._open = answers
        self._probe = Reply()
        self.events: list[Event] = []
        self.began = False
        """Something of the model's output has come."""
        self.ended = False
        """Every answer has said why it ends, or the end mark has come."""

    def note(self, events: list[Event]) -> None:
        self.events += events
        for event in events:
            if not self.began and (data := event.json()) is not None:
                self._probe.feed(data)
                self.began = self._probe.seen
            self._open -= len(_FINISH.findall(event.data))
            if self._open <= 0 or event.data == _DONE or _ENDED.search(event.data):
                self.ended = True
