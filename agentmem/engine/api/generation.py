"""Engine requests seen from the event loop: deltas as they come, then one record each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any

from agentmem.engine.api.errors import ApiError
from agentmem.engine.api.limits import shutting_down
from agentmem.engine.api.state import ChatModel, Served
from agentmem.engine.api.usage import account, total
from agentmem.engine.request import Delta, Request, RequestRecord


class Generation:
    """The engine requests of one HTTP request, run side by side.

    As a context manager it submits on entry and, on the way out, cancels what has not ended: a
    client that goes away stops the engine. `records` fill up as requests end, also after exit.
    """

    def __init__(
        self,
        served: Served,
        model: ChatModel,
        request_id: str,
        requests: list[Request],
        ignored: list[str] | None = None,
    ) -> None:
        self.id, self.requests = request_id, requests
        self.records: list[RequestRecord | None] = [None] * len(requests)
        self._core, self._served = model.core, served
        self._facts = model.facts() | ({} if ignored is None else {"ignored": ignored})
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[tuple[int, Delta | RequestRecord]] = asyncio.Queue()
        self._accounts: dict[int, dict[str, Any]] = {}
        self._submitted = 0

    async def __aenter__(self) -> Generation:
        try:
            for at in range(len(self.requests)):
                self._submit(at)
        except BaseException:
            self.cancel()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, err: BaseException | None, at: TracebackType | None
    ) -> None:
        self.cancel()

    async def deltas(self) -> AsyncIterator[tuple[int, Delta]]:
        """(choice, delta) in order of arrival until all have ended; 500 if the engine gave up."""
        while any(record is None for record in self.records):
            at, event = await self._events.get()
            if isinstance(event, Delta):
                yield at, event
            else:
                self.records[at] = event
                self._check(at, event)

    def cancel(self) -> None:
        """Tell the engine to end what still runs."""
        for request, record in zip(self.requests[: self._submitted], self.records, strict=False):
            if record is None:
                self._core.cancel(request.request_id)

    @property
    def told(self) -> dict[str, Any]:
        """`usage.agentmem` of the whole; once all have ended."""
        return total(self.id, [self._accounts[at] for at in range(len(self.requests))])

    def _submit(self, at: int) -> None:
        request = self.requests[at]
        ledger = self._served.ledger
        ledger.begin(self.id, request.request_id)
        try:
            self._core.submit(
                request,
                lambda delta: self._call(self._events.put_nowait, (at, delta)),
                lambda record: self._call(self._end, at, record),
            )
        except BaseException:
            ledger.in_flight.pop(request.request_id, None)
            raise
        self._submitted += 1

    @property
    def timeout_s(self) -> float | None:
        """How long the whole may take."""
        return self._served.limits.timeout_s

    def _call(self, *args: Any) -> None:
        # From the engine's thread; the loop may be gone when the server stops.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(*args)

    def _end(self, at: int, record: RequestRecord) -> None:
        request = self.requests[at]
        self._accounts[at] = account(record, request, self._facts)
        self._served.ledger.end(self.id, request.request_id, self._accounts[at])
        self._served.meter.ended(record)
        self._events.put_nowait((at, record))

    def _check(self, at: int, record: RequestRecord) -> None:
        failed = getattr(self.requests[at].constraint, "error", None)
        if failed:
            raise ApiError(500, f"the grammar gave up: {failed}", code="grammar_failed")
        if record.finish_reason == "abort":
            if self._served.gate.stopped:
                raise shutting_down()
            raise ApiError(500, "the engine aborted the request; see its log", code="aborted")
