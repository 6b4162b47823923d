"""One request from arrival to booking: receive, forward, pass the reply on, record."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from agentmem.gateway.asked import endpoint_of, read_request
from agentmem.gateway.attempts import retry_count
from agentmem.gateway.client import Address, ClientSide, error_reply, parse_address
from agentmem.gateway.exchange import Exchange, begin_row
from agentmem.gateway.forcing import (
    ForcedStream,
    Forcing,
    can_be_produced,
    complaint,
    produced,
)
from agentmem.gateway.options import GatewayOptions
from agentmem.gateway.policy import outgoing
from agentmem.gateway.record_format import Entry
from agentmem.gateway.recorder import Recorder
from agentmem.gateway.replay import ReplayedReply, not_producible
from agentmem.gateway.replies import Reply
from agentmem.gateway.scopes import Arrival, ScopeBook
from agentmem.gateway.streams import EventSplitter, Progress, is_usage_only
from agentmem.gateway.upstream import UPSTREAM_ERRORS, Forwarder, reply_headers, request_headers
from agentmem.records import Row

CALL_HEADER = "X-Agentmem-Call"
"""Reply header with the call's id, for adapters that classify their own calls later."""
_TAIL_S = 2.0
"""How long to read on for usage after a client left with its whole answer."""
T = TypeVar("T")
_PASSING = (429, 500, 502, 503, 504)
"""States of an engine that say nothing against the request."""
UpstreamReply = aiohttp.ClientResponse | ReplayedReply | ForcedStream


class Relay:
    """Request handler of the gateway's server. Lives on the event loop."""

    def __init__(
        self,
        book: ScopeBook,
        recorder: Recorder,
        forwarder: Forwarder,
        sink: Callable[[Row], None],
        clock: Callable[[], float],
        options: GatewayOptions,
    ) -> None:
        self._book, self._recorder, self._forwarder = book, recorder, forwarder
        self._sink, self._clock, self._options = sink, clock, options
        self._tasks: set[asyncio.Task[Any]] = set()
        boot = uuid.uuid4().hex[:8]  # a resumed run must not repeat an earlier one's ids
        self._call_ids = (f"{boot}-{n:06d}" for n in itertools.count())
        self.strays = 0
        """Requests for scopes that were never handed out."""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.rel_url.raw_path
        if path == "/healthz":
            return self._health()
        address = parse_address(path)
        if address is None:
            hint = "models are reached below /s/<scope>/v1/"
            return error_reply(404, "unknown_path", f"no such path {path!r}: {hint}")
        arrival = self._book.arrive(address.scope, address.operation)
        if arrival is None:
            self.strays += 1
            message = f"unknown scope {address.scope!r}: it was never handed out by this run"
            return error_reply(404, "unknown_scope", message)
        return await self._serve(request, address, arrival)

    async def close(self) -> None:
        """Give up what is still running; every exchange is booked."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(
        self, request: web.BaseRequest, address: Address, arrival: Arrival
    ) -> web.StreamResponse:
        ex = None
        try:
            ex = await self._receive(request, address, arrival, self._clock())
        except web.RequestPayloadError as error:  # e.g. not compressed as its header says
            return error_reply(400, "invalid_body", f"the body cannot be read: {error}")
        finally:
            if ex is None:  # no whole request arrived, so nothing was asked
                self._book.leave(arrival)
        client = ClientSide(request)
        task = self._spawn(self._run(ex, client, request, address.tail))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._client_left(ex, client, task)
            raise

    async def _receive(
        self, request: web.BaseRequest, address: Address, arrival: Arrival, start_s: float
    ) -> Exchange:
        """Read the request, decide what goes out, and write its begin row."""
        raw = await request.content.read()
        asked = read_request(endpoint_of(request.method, address.tail), raw, request.headers)
        call_id, retries = next(self._call_ids), retry_count(request.headers)
        logical, attempt = self._book.attempt(arrival, asked.request_hash, retries, call_id)
        scope, phase = arrival.state.scope, arrival.slot.phase
        out = outgoing(asked, scope, phase, logical.occurrence, call_id, self._options)
        ex = Exchange(call_id, arrival, asked, out, logical, attempt, retries, start_s)
        query = request.rel_url.raw_query_string
        ex.target = f"{request.method} {address.tail}" + (f"?{query}" if query else "")
        self._sink(begin_row(ex))
        return ex

    async def _run(
        self, ex: Exchange, client: ClientSide, request: web.BaseRequest, tail: str
    ) -> web.StreamResponse:
        try:
            await self._exchange(ex, client, request, tail)
        except asyncio.CancelledError:
            ex.outcome = "ok" if ex.complete else "abandoned"
        finally:
            self._finish(ex)
        return client.response

    async def _exchange(
        self, ex: Exchange, client: ClientSide, request: web.BaseRequest, tail: str
    ) -> None:
        try:
            reply = await self._timed(ex, self._open(ex, request, tail))
        except UPSTREAM_ERRORS as error:
            await self._refuse(ex, client, error)
            return
        try:
            await self._pass_on(ex, client, reply)
        except UPSTREAM_ERRORS as error:
            ex.broken = True
            self._broke(ex, client, f"the upstream broke off its reply ({_name(error)})")
            self._book.transport_failed(ex.arrival)
        finally:
            reply.close()  # of a reply not read to its end, this tells the upstream to stop

    async def _open(self, ex: Exchange, request: web.BaseRequest, tail: str) -> UpstreamReply:
        replay, forcing = self._options.replay, self._options.forcing
        if replay is None:
            return await self._forward(ex, request, tail)
        found = await replay.open(ex, again=forcing is not None)
        if forcing is None or ex.replayed is None or not can_be_produced(ex.asked, ex.replayed):
            return found
        return await self._produce(ex, ex.replayed, forcing, request, tail)

    async def _forward(
        self, ex: Exchange, request: web.BaseRequest, tail: str, extra: Mapping[str, Any] = {}
    ) -> aiohttp.ClientResponse:
        headers = request_headers(request.headers, ex.out.headers)
        target = self._forwarder.target(ex.asked.endpoint, tail, request.rel_url.raw_query_string)
        return await self._forwarder.open(request.method, target, headers, ex.out.sent(extra))

    async def _produce(
        self, ex: Exchange, entry: Entry, forcing: Forcing, request: web.BaseRequest, tail: str
    ) -> UpstreamReply:
        """Have the engine do a recorded reply's work, and give the reply as recorded."""
        try:
            extra = forcing.fields(ex.asked, entry)
        except ValueError as error:
            return not_producible(ex, entry, str(error))
        ex.forced = True
        reply = await self._forward(ex, request, tail, extra)
        try:
            if reply.status != 200:
                why = complaint(reply.status, await reply.read())
                if reply.status in _PASSING:  # the work can be done again later
                    raise ConnectionError(why)
                return not_producible(ex, entry, why)
            if entry.streamed:
                return ForcedStream(entry, reply, lambda said: setattr(ex, "produced", said))
            ex.produced = await produced(reply)
        except BaseException:
            reply.close()
            raise
        return ReplayedReply(entry)

    async def _pass_on(self, ex: Exchange, client: ClientSide, reply: UpstreamReply) -> None:
        ex.status, ex.headers, ex.length = reply.status, reply.headers, reply.content_length
        if reply.status >= 400:  # before the client can send its retry
            ex.logical.state = "failed"
        ex.streamed = reply.content_type == "text/event-stream"
        headers = reply_headers(reply.headers)
        headers[CALL_HEADER] = ex.call_id
        if ex.streamed:
            length = None if ex.out.strip_usage else reply.content_length
            await client.begin(reply.status, headers, length)
            await self._stream(ex, client, reply)
        else:
            await self._whole(ex, client, reply, headers)
        if ex.outcome == "truncated":
            self._broke(ex, client, ex.error)
            if not client.gone:
                self._book.transport_failed(ex.arrival)
            return
        await client.end()
        ex.complete = ex.complete or not client.gone
        if not ex.complete:
            ex.outcome = "abandoned"
        else:
            ex.outcome = "http_error" if reply.status >= 400 else "ok"

    async def _whole(
        self,
        ex: Exchange,
        client: ClientSide,
        reply: UpstreamReply,
        headers: CIMultiDict[str],
    ) -> None:
        """Pass on a plain body as it comes; one that is here already goes out in one piece."""
        chunk = await self._timed(ex, reply.content.readany())
        if len(chunk) == reply.content_length:
            client.whole(reply.status, headers, chunk)
        else:
            await client.begin(reply.status, headers, reply.content_length)
            await client.write(chunk)
        while chunk:
            ex.kept.append(chunk)
            ex.response_bytes += len(chunk)
            if ex.response_bytes == reply.content_length:
                ex.complete = not client.gone and len(ex.kept) > 1
                return
            chunk = await self._timed(ex, reply.content.readany())
            await client.write(chunk)

    async def _stream(self, ex: Exchange, client: ClientSide, reply: UpstreamReply) -> None:
        """Pass on events as they come, and read them once they are on their way."""
        splitter, strip = EventSplitter(), ex.out.strip_usage
        ex.progress = progress = Progress(ex.asked.answers)
        while chunk := await self._timed(ex, reply.content.readany()):
            at_s = self._clock()
            if not strip:
                await client.write(chunk)
            events = splitter.feed(chunk)
            if strip:
                await client.write(b"".join(e.raw for e in events if not is_usage_only(e)))
            progress.note(events)
            if progress.began and ex.first_token_s is None:
                ex.first_token_s = at_s
            ex.complete = ex.complete or (progress.ended and not client.gone)
            ex.response_bytes += len(chunk)
            if self._options.keeps_text:
                ex.kept.append(chunk)
        if strip:
            await client.write(splitter.rest)
        judged = ex.asked.endpoint != "other" and reply.status < 400
        if judged and not progress.ended:
            ex.outcome, ex.error = "truncated", "the stream ended without a finish reason or [DONE]"

    async def _refuse(self, ex: Exchange, client: ClientSide, error: BaseException) -> None:
        """No reply from the upstream: say so to the client as a gateway does."""
        status = 504 if isinstance(error, TimeoutError) else 502
        ex.outcome, ex.error = "transport_error", f"no reply from the upstream ({_name(error)})"
        ex.logical.state = "failed"
        self._book.transport_failed(ex.arrival)
        client.response = error_reply(status, "upstream_unreachable", ex.error)

    def _broke(self, ex: Exchange, client: ClientSide, error: str | None) -> None:
        ex.outcome, ex.error = "abandoned" if client.gone else "truncated", error
        client.cut()

    def _client_left(
        self, ex: Exchange, client: ClientSide, task: asyncio.Task[web.StreamResponse]
    ) -> None:
        """Pass a disconnect on, or read on where the reply's end is still wanted."""
        client.gone = True
        if task.done() or ex.end_s is not None:
            return
        ex.end_s = self._clock()
        drain = self._options.on_abandon == "drain"
        if ex.complete or drain:
            limit_s = self._options.drain_timeout_s if drain else _TAIL_S
            asyncio.get_running_loop().call_later(limit_s, task.cancel)
        else:
            task.cancel()

    def _finish(self, ex: Exchange) -> None:
        if ex.outcome == "open":
            ex.outcome, ex.error = "transport_error", "the gateway failed; see its log"
            self._book.transport_failed(ex.arrival)
        if ex.end_s is None:
            ex.end_s = self._clock()
        ex.logical.state = "done" if ex.outcome == "ok" else "failed"
        if ex.outcome == "abandoned" and self._options.on_abandon == "close":
            self._spawn(self._ask_report(ex))
        else:
            self._recorder.put(ex)

    async def _ask_report(self, ex: Exchange) -> None:
        """Learn from the engine what it computed before it saw the client leave."""
        try:
            if self._options.replay is None or ex.forced:
                report = await self._forwarder.report(ex.call_id)
                ex.report = report.get("usage") if isinstance(report, dict) else None
            elif ex.replayed is not None:
                ex.report = ex.replayed.report
            if ex.forced:
                ex.produced = ex.produced or Reply()
            (ex.produced or ex.reply).feed({"usage": ex.report})
        finally:
            self._recorder.put(ex)

    async def _timed(self, ex: Exchange, waiting: Awaitable[T]) -> T:
        began_s = self._clock()
        try:
            return await waiting
        finally:
            ex.upstream_s += self._clock() - began_s

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _health(self) -> web.Response:
        busy = self._book.total_in_flight()
        return web.json_response({"status": "ok", "in_flight": busy, "strays": self.strays})


def _name(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
