"""A gateway in front of the fake, and its rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest

from agentmem.gateway import Gateway, GatewayOptions, Upstream
from agentmem.records import Call, CallBegin, Reattribution, Row, Scope
from tests.fake import FakeUpstream
from tests.fake.words import count


@dataclass
class Meter:
    """One gateway with one scope open, and shorthand for what tests do with it."""

    gateway: Gateway
    fake: FakeUpstream
    rows: list[Row]
    scope: str = "sys.h1"
    urls: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.urls[self.scope]

    def open(self, scope: str, system: str = "sys", history: str = "h1", **more: Any) -> str:
        given = Scope(scope, system, history, tenant=f"{system}.r0", **more)
        self.urls[scope] = self.gateway.open_scope(given)
        return self.urls[scope]

    def quiet(self, scope: str | None = None) -> None:
        waited = self.gateway.wait_quiet(scope or self.scope, 0.0, 10.0)
        assert waited is not None, "calls still in flight"

    def calls(self, scope: str | None = None) -> list[Call]:
        """All booked calls of a scope, after it went quiet; each has had its begin row."""
        self.quiet(scope)
        begun = {row.call_id for row in self.rows if isinstance(row, CallBegin)}
        calls = [row for row in self.rows if isinstance(row, Call)]
        assert {c.call_id for c in calls} <= begun
        return [c for c in calls if c.scope == (scope or self.scope)]

    def call(self) -> Call:
        [one] = self.calls()
        return one

    def reattributions(self) -> list[Reattribution]:
        return [row for row in self.rows if isinstance(row, Reattribution)]

    def post(self, tail: str, body: dict[str, Any], **more: Any) -> httpx2.Response:
        return httpx2.post(f"{self.url}/{tail}", json=body, timeout=20, **more)

    def post_raw(self, tail: str, raw: bytes) -> httpx2.Response:
        return httpx2.post(f"{self.url}/{tail}", content=raw, timeout=20)

    def chat(self, text: str = "hello there", **more: Any) -> httpx2.Response:
        return self.post("chat/completions", chat_body(text, **more))


def chat_body(text: str = "hello there", **more: Any) -> dict[str, Any]:
    return {"model": "fake-chat", "messages": [{"role": "user", "content": text}], **more}


def eventually(ready: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    """Poll until `ready`; False when the time ran out."""
    end = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


@pytest.fixture
def make_meter(fake: FakeUpstream) -> Iterator[Callable[..., Meter]]:
    """Build meters with options of `GatewayOptions` (and `upstream=` for another upstream)."""
    built: list[Meter] = []

    def make(upstream: Upstream | None = None, **options: Any) -> Meter:
        options = {"token_counter": count, "tokenizer_name": "words", **options}
        rows: list[Row] = []
        gateway = Gateway(
            upstream or Upstream(fake.url), rows.append, options=GatewayOptions(**options)
        )
        gateway.start()
        meter = Meter(gateway, fake, rows)
        meter.open(meter.scope)
        built.append(meter)
        return meter

    yield make
    for meter in built:
        meter.gateway.stop()


@pytest.fixture
def meter(make_meter: Callable[..., Meter]) -> Meter:
    return make_meter()
