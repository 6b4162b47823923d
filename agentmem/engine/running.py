"""Engine requests that run side by side, waited for by a thread or by an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import queue
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING

from agentmem.engine.generated import Piece, piece_of
from agentmem.engine.request import Delta, Request, RequestRecord
from agentmem.errors import EngineError

if TYPE_CHECKING:
    from agentmem.engine.core import EngineCore

Event = tuple[int, Delta | RequestRecord]


class Running:
    """Requests of one call. Whoever stops waiting cancels what has not ended.

    `pieces` or `apieces` is to be called once; `records` fills up with it.
    """

    def __init__(self, core: EngineCore, requests: list[Request]) -> None:
        self._core, self._requests = core, requests
        self._found: dict[int, RequestRecord] = {}
        self._submitted = 0

    @property
    def records(self) -> tuple[RequestRecord, ...]:
        """Records of the requests that have ended, in the order of the requests."""
        return tuple(self._found[at] for at in sorted(self._found))

    def pieces(self) -> Iterator[Piece]:
        """Pieces in order of arrival, until all requests have ended."""
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        try:
            self._submit(events.put)
            while len(self._found) < len(self._requests):
                if (piece := self._take(*events.get())) is not None:
                    yield piece
        finally:
            self._cancel()

    async def apieces(self) -> AsyncIterator[Piece]:
        """The same for an event loop."""
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event] = asyncio.Queue()

        def put(event: Event) -> None:
            # From the engine's thread; the loop may be gone by then.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(events.put_nowait, event)

        try:
            self._submit(put)
            while len(self._found) < len(self._requests):
                if (piece := self._take(*await events.get())) is not None:
                    yield piece
        finally:
            self._cancel()

    def _submit(self, put: Callable[[Event], None]) -> None:
        for at, request in enumerate(self._requests):

            def on_delta(delta: Delta, at: int = at) -> None:
                put((at, delta))

            def on_done(record: RequestRecord, at: int = at) -> None:
                put((at, record))

            self._core.submit(request, on_delta, on_done)
            self._submitted += 1

    def _take(self, at: int, event: Delta | RequestRecord) -> Piece | None:
        if isinstance(event, Delta):
            return piece_of(at, event)
        self._found[at] = event
        if event.finish_reason == "abort":
            raise EngineError(f"the engine ended request {event.request_id} before its end")
        return None

    def _cancel(self) -> None:
        for at, request in enumerate(self._requests[: self._submitted]):
            if at not in self._found:
                self._core.cancel(request.request_id)
