"""The gateway as the runner sees it: a server in a thread of its own, and its book of calls."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
import time
from collections.abc import Callable, Iterable
from urllib.parse import quote

import uvloop
from aiohttp import web

from agentmem.errors import UsageError
from agentmem.gateway.options import GatewayOptions, Upstream
from agentmem.gateway.recorder import Recorder
from agentmem.gateway.relay import Relay
from agentmem.gateway.scopes import ScopeBook, Slot
from agentmem.gateway.upstream import Forwarder
from agentmem.records import Bucket, Call, Phase, Reattribution, Row, Scope, Stage

__all__ = ["Gateway", "GatewayOptions", "Upstream"]

_HOST = "127.0.0.1"
_BACKLOG = 512
_SHUTDOWN_S = 0.5


class Gateway:
    """OpenAI-compatible metering proxy on loopback. Methods may be called from any thread.

    `sink` gets `CallBegin`, `Call` and `Reattribution` rows (and the `Failure` of a request that a
    replay does not know), from two threads of the gateway's.
    `clock` gives seconds since the run's start on the monotonic clock (R5).
    """

    def __init__(
        self,
        upstream: Upstream,
        sink: Callable[[Row], None],
        clock: Callable[[], float] | None = None,
        options: GatewayOptions | None = None,
    ) -> None:
        zero_s = time.perf_counter()
        self._upstream, self._sink = upstream, sink
        self._clock = clock or (lambda: time.perf_counter() - zero_s)
        self._options = options or GatewayOptions()
        self._book = ScopeBook()
        self._recorder = Recorder(self._book, sink, self._options)
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gateway", daemon=True)
        self._base: str | None = None
        self._runner: web.ServerRunner | None = None
        self._forwarder: Forwarder | None = None
        self._relay: Relay | None = None

    @property
    def base(self) -> str:
        """`http://127.0.0.1:PORT`, once started."""
        if self._base is None:
            raise RuntimeError("the gateway is not started")
        return self._base

    def start(self) -> str:
        """Listen and return the base URL. UsageError when the port cannot be had."""
        listener = _listen(self._options.port)
        self._base = f"http://{_HOST}:{listener.getsockname()[1]}"
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(listener), self._loop).result()
        return self._base

    def stop(self) -> None:
        """Cut what is in flight, book it, and let go of the port. Raises what recording raised."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
        self._recorder.close()

    def __enter__(self) -> Gateway:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def open_scope(self, scope: Scope) -> str:
        """Make a scope known, or reopen a closed one for a later epoch; returns its URL."""
        self._book.open(scope)
        return self.url_of(scope.scope)

    def url_of(self, scope_id: str, operation: str | None = None) -> str:
        """Base URL of a scope, or of one named operation of it."""
        middle = "" if operation is None else f"/{quote(operation, safe='')}"
        return f"{self.base}/s/{quote(scope_id, safe='')}{middle}/v1"

    def set_phase(
        self,
        scope_id: str,
        phase: Phase | None,
        bucket: Bucket | None = None,
        unit: str | None = None,
        operation: str | None = None,
    ) -> None:
        """Say what the scope, or one operation of it, does from now on.

        Without a bucket a phase is "measured" and no phase is "unattributed". A call keeps the
        phase in which it arrived. An operation that was never given a phase has its scope's.
        """
        given: Bucket = bucket or ("unattributed" if phase is None else "measured")
        self._book.set_slot(scope_id, operation, Slot(phase, given, unit))

    def close_scope(self, scope_id: str) -> None:
        """End a scope's phases; it stays known, later calls are forwarded and unattributed."""
        self._book.close(scope_id)

    def in_flight(self, scope_id: str, operation: str | None = None) -> int:
        """Requests that arrived and are not booked yet, of a scope or one operation of it."""
        return self._book.read(scope_id, lambda state: state.busy(operation))

    def wait_quiet(
        self,
        scope_id: str,
        interval_s: float,
        timeout_s: float,
        *,
        operation: str | None = None,
        close_phase: bool = False,
    ) -> float | None:
        """Wait until nothing has been in flight for `interval_s` from now on, all rows written.

        Returns the seconds it took, or None when `timeout_s` passed first. `close_phase` ends
        the phase in the same instant, so that no call can slip in between.
        """
        waited_s = self._book.wait_quiet(scope_id, operation, interval_s, timeout_s, close_phase)
        self._recorder.check()
        return waited_s

    def hold(self) -> None:
        """Let new calls wait while the upstream restarts; the wait is no overhead of ours."""
        if self._forwarder is not None:
            self._loop.call_soon_threadsafe(self._forwarder.open_road.clear)

    def release(self) -> None:
        """Let held calls go on."""
        if self._forwarder is not None:
            self._loop.call_soon_threadsafe(self._forwarder.open_road.set)

    def transport_failures(self, scope_id: str, *operations: str) -> int:
        """Calls so far that got no reply, or half of one, because the upstream went away.

        Those of the named operations only, or all of the scope's.
        """
        return self._book.read(scope_id, lambda state: state.broken(operations))

    def reattribute(
        self,
        call_ids: Iterable[str],
        phase: Phase,
        stage: Stage | None = None,
        kind: str | None = None,
        reason: str = "",
    ) -> None:
        """Give booked calls their final phase; a row each. KeyError for an unknown call."""
        for call_id in call_ids:
            row = Reattribution(call_id, phase, stage, kind, reason)
            self._book.reattribute(row)
            self._sink(row)

    def calls_of(self, scope_id: str, since_s: float = 0.0) -> list[Call]:
        """Booked calls that arrived at `since_s` or later, in order of booking."""
        return self._book.calls_of(scope_id, since_s)

    async def _serve(self, listener: socket.socket) -> None:
        self._forwarder = Forwarder(self._upstream, self._options)
        self._relay = Relay(
            self._book, self._recorder, self._forwarder, self._sink, self._clock, self._options
        )
        server = web.Server(self._relay.handle, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_S)
        await self._runner.setup()
        await web.SockSite(self._runner, listener, backlog=_BACKLOG).start()

    async def _close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        if self._relay is not None:
            await self._relay.close()
        if self._forwarder is not None:
            await self._forwarder.close()


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((_HOST, port))
        listener.listen(_BACKLOG)
    except OverflowError:
        listener.close()
        raise UsageError(f"a port is a number from 0 to 65535, not {port}") from None
    except OSError as error:
        listener.close()
        taken = error.errno == errno.EADDRINUSE
        why = "another program listens there" if taken else (error.strerror or str(error))
        raise UsageError(
            f"gateway cannot listen on {_HOST}:{port}: {why}; choose another port, or 0 for any"
        ) from error
    return listener
