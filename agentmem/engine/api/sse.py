"""Server-sent events."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web

from agentmem.engine.api.errors import ApiError

CLOSE_S = 5.0
"""How long the end of a stream may take to be sent to a client that does not read."""


class EventStream:
    """One streamed response. Clients see each event as it is sent."""

    def __init__(self, request: web.Request, request_id: str) -> None:
        self._request = request
        self._response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-cache",
                "X-Request-Id": request_id,
            }
        )

    async def open(self) -> None:
        """Send the headers; from here on errors travel inside the stream."""
        await self._response.prepare(self._request)

    async def send(self, event: dict[str, Any], name: str | None = None) -> None:
        """One data event, with a name where the surface has names."""
        head = f"event: {name}\n" if name else ""
        await self._write(f"{head}data: {json.dumps(event, separators=(',', ':'))}\n\n")

    async def comment(self, text: str) -> None:
        """A line that clients skip."""
        await self._write(f": {text}\n\n")

    async def close(
        self, failure: ApiError | None = None, last: str = "[DONE]"
    ) -> web.StreamResponse:
        """End the stream, after an error event when something failed; `last` "" says no more."""
        try:
            async with asyncio.timeout(CLOSE_S):
                if failure is not None:
                    await self.send(failure.body())
                if last:
                    await self._write(f"data: {last}\n\n")
                await self._response.write_eof()
        except TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()
        return self._response

    async def _write(self, text: str) -> None:
        await self._response.write(text.encode())
