"""Serves a recording's replies in the upstream's place. Contacts nobody."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multidict import CIMultiDict

from agentmem.gateway.exchange import Exchange
from agentmem.gateway.record_format import Entry, Key, key_of
from agentmem.gateway.replay_file import Index, read_index

NOT_RECORDED = "not_recorded"
_HOLD_FACTOR, _HOLD_S = 2.0, 10.0
"""A client that left in the recording is waited for this much longer, then given up."""


class Replay:
    """A recording, open for replay. Looking a reply up uses nothing up: work that is rolled back
    or resumed asks again and gets the same replies.
    """

    def __init__(self, path: Path) -> None:
        """DataError when the file is no recording of this version, or damaged before its tail."""
        self._index: Index = read_index(path)

    @property
    def path(self) -> Path:
        return self._index.path

    @property
    def header(self) -> Mapping[str, Any]:
        return self._index.header

    @property
    def sha256(self) -> str:
        """Of all whole lines: the file's own, unless its tail is torn."""
        return self._index.sha256

    @property
    def calls(self) -> int:
        """Replies that can be served."""
        return len(self._index.exact)

    async def open(self, ex: Exchange, *, again: bool = False) -> ReplayedReply:
        """The recorded reply of a request, or a 404; raises what the upstream's client raised.

        `again`: a client's retry that the recording does not know gets the reply of the attempt
        before; where an engine does the work, calls can break that did not break then.
        """
        key = key_of(ex)
        entry = self._index.find(key)
        while entry is None and again and key.attempt:
            key = dataclasses.replace(key, attempt=key.attempt - 1)
            entry = self._index.find(key)
        if entry is None:
            return self._unknown(key, ex)
        ex.replayed = entry
        if entry.end == "none":
            message = f"as recorded: {entry.error}"
            raise TimeoutError(message) if "Timeout" in message else ConnectionError(message)
        if entry.status is None:
            await _wait_for_leaving(entry)
        return ReplayedReply(entry)

    def close(self) -> None:
        self._index.close()

    def _unknown(self, key: Key, ex: Exchange) -> ReplayedReply:
        again = f", asked {key.occurrence + 1} times" if key.occurrence else ""
        at = f"{key.scope}, {key.unit}" if key.unit else key.scope
        message = (
            f"no reply is recorded for this {ex.asked.endpoint} request of {at} "
            f"(request {key.request[:12]}{again}, attempt {key.attempt})"
        )
        ex.missed = f"{self.path}: {message}; a replay needs its recording's profile, data and code"
        return refusal(key, 404, message)


def not_producible(ex: Exchange, entry: Entry, why: str) -> ReplayedReply:
    """A recorded reply that the engine cannot be made to produce: as final as an unknown one."""
    at = f"{entry.key.scope}, {entry.key.unit}" if entry.key.unit else entry.key.scope
    message = f"the engine cannot produce the recorded reply of {at}: {why}"
    ex.missed, ex.replayed, ex.forced = f"replay through the engine: {message}", None, False
    return refusal(entry.key, 422, message)


def refusal(key: Key, status: int, message: str) -> ReplayedReply:
    """An error reply that no client library tries again."""
    error = {"message": message, "type": "agentmem_gateway", "param": None, "code": NOT_RECORDED}
    body = json.dumps({"error": error}).encode()
    headers = {"content-type": "application/json", "x-should-retry": "false"}
    return ReplayedReply(
        Entry(key, status, headers, len(body), False, (body,), "whole", None, None, {})
    )


class ReplayedReply:
    """Looks like an upstream's reply to the relay; all of it is there at once."""

    def __init__(self, entry: Entry) -> None:
        assert entry.status is not None
        self._entry = entry
        self._chunks = deque(chunk for chunk in entry.chunks if chunk)
        self.status: int = entry.status
        self.headers = CIMultiDict(entry.headers)
        self.content_type = "text/event-stream" if entry.streamed else "application/json"
        self.content_length = entry.length
        self.content = self

    async def readany(self) -> bytes:
        """The next chunk as it was received, b"" at the end; a lost connection is lost again."""
        if self._chunks:
            return self._chunks.popleft()
        if self._entry.end == "broken":
            raise ConnectionError(f"as recorded: {self._entry.error}")
        if self._entry.end == "left":
            await _wait_for_leaving(self._entry)
        return b""

    def close(self) -> None:
        """Nothing to let go of."""


async def _wait_for_leaving(entry: Entry) -> None:
    """In the recording the client left here: give this one the time to do the same."""
    await asyncio.sleep((entry.recorded_s["latency_s"] or 0.0) * _HOLD_FACTOR + _HOLD_S)
    raise TimeoutError("the recorded client left here, this one did not")
