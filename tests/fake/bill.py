"""The true bill: what was asked of the fake and what it computed, whatever it reported."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Served:
    """One HTTP request as the fake saw it, and the tokens it truly cost."""

    request_id: str
    endpoint: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: dict[str, Any]
    raw: bytes
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    """Tokens computed before the end, the fault, or the client's leaving."""
    status: int | None = None
    disconnected: bool = False
    """The client left before the reply's end."""
    done: bool = False
    reported: bool = False
    """The usage was in the reply."""


@dataclass(slots=True)
class Bill:
    """All requests in order of arrival."""

    requests: list[Served] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def add(self, served: Served) -> None:
        with self._changed:
            self.requests.append(served)
            self._changed.notify_all()

    def settle(self, served: Served) -> None:
        """A request is over."""
        with self._changed:
            served.done = True
            self._changed.notify_all()

    def of(self, *endpoints: str) -> list[Served]:
        with self._changed:
            return [r for r in self.requests if not endpoints or r.endpoint in endpoints]

    def tokens(self, *endpoints: str) -> tuple[int, int]:
        """(input, output) tokens computed."""
        served = self.of(*endpoints)
        return sum(r.input_tokens for r in served), sum(r.output_tokens for r in served)

    def wait(self, ready: Callable[[list[Served]], bool], timeout_s: float = 10.0) -> bool:
        """Block until the requests satisfy `ready`; False when the time ran out."""
        with self._changed:
            return self._changed.wait_for(lambda: ready(self.requests), timeout_s)

    def clear(self) -> None:
        with self._changed:
            self.requests.clear()
