"""The fake itself: a real HTTP server on loopback, in a thread of its own.

with FakeUpstream(dims=16, on_chat=lambda body: "yes") as fake:
    fake.url                                # http://127.0.0.1:PORT/v1
    fake.fail(Fault("status", status=500), times=2)
    fake.bill.tokens("chat")                # (input, output) truly computed
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable
from typing import Any

from aiohttp import web

from tests.fake.behaviour import Behaviour, Fault
from tests.fake.bill import Bill, Served
from tests.fake.shapes import engine_usage, usage
from tests.fake.talk import FaultError, Talk, error_body
from tests.fake.words import as_base64, count, embed, prompt_tokens, tokens_of

_ENDPOINTS = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completion",
    "/v1/responses": "responses",
    "/v1/embeddings": "embedding",
}


class FakeUpstream:
    """OpenAI-compatible server whose `bill` is the truth. Keywords are fields of `Behaviour`."""

    def __init__(self, port: int = 0, **behaviour: Any) -> None:
        self.behaviour = Behaviour(**behaviour)
        self.bill = Bill()
        self.on_request: Callable[[tuple[str, int]], object] | None = None
        """Told the client's address and port at every model call."""
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake", daemon=True)
        self._runner: web.AppRunner | None = None
        self.root = ""
        """`http://127.0.0.1:PORT`, once started."""

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    def start(self) -> str:
        """Listen; returns the base URL ending in /v1."""
        listener = socket.create_server(("127.0.0.1", self._port))
        self.root = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(listener), self._loop).result()
        return self.url

    def stop(self) -> None:
        """Break all connections and let go of the port."""
        if not self._thread.is_alive() or self._runner is None:
            return
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> FakeUpstream:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def fail(self, fault: Fault, times: int = 1) -> None:
        """Plan a failure for the next `times` requests that fit it."""
        with self._lock:
            self._faults += [fault] * times

    def fault_for(self, served: Served) -> Fault | None:
        """Take the next planned failure that fits a request."""
        with self._lock:
            for place, fault in enumerate(self._faults):
                if fault.endpoint not in (None, served.endpoint):
                    continue
                if fault.fits is None or fault.fits(served):
                    return self._faults.pop(place)
        return None

    async def _serve(self, listener: socket.socket) -> None:
        app = web.Application(client_max_size=1 << 28)
        for path in _ENDPOINTS:
            app.router.add_post(path, self._model_call)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_get("/health", self._health)
        app.router.add_get("/agentmem/requests/{request_id}", self._report)
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1
        )
        await self._runner.setup()
        await web.SockSite(self._runner, listener).start()

    async def _model_call(self, request: web.Request) -> web.StreamResponse:
        served = await self._note(request)
        try:
            if not isinstance(served.body, dict) or not served.body:
                raise FaultError(400, error_body("the body is no JSON object", "invalid_body"))
            if served.endpoint == "embedding":
                return await self._embeddings(served, request)
            return await Talk(self, served, request).reply()
        except FaultError as fault:
            served.status = fault.status
            return web.json_response(fault.body, status=fault.status)
        except (asyncio.CancelledError, ConnectionError):
            served.disconnected = True
            raise
        finally:
            self.bill.settle(served)

    async def _note(self, request: web.Request) -> Served:
        if self.on_request is not None and request.transport is not None:
            self.on_request(request.transport.get_extra_info("peername"))
        raw = await request.read()
        try:
            body = json.loads(raw)
        except ValueError:
            body = {}
        headers = {k.lower(): v for k, v in request.headers.items()}
        request_id = headers.get("x-request-id") or f"req-{len(self.bill.requests)}"
        endpoint = _ENDPOINTS[request.path]
        served = Served(request_id, endpoint, request.path_qs, headers, body, raw)
        self.bill.add(served)
        return served

    async def _embeddings(self, served: Served, request: web.Request) -> web.StreamResponse:
        talk = Talk(self, served, request)
        fault = await talk.meet_fault()
        behaviour, body = self.behaviour, served.body
        served.input_tokens = len(prompt_tokens(body))
        await asyncio.sleep(behaviour.embed_s)
        given: Any = body.get("input")
        several = isinstance(given, list) and not all(isinstance(v, int) for v in given)
        texts = [
            t if isinstance(t, str) else json.dumps(t) for t in (given if several else [given])
        ]
        vectors = [embed(t, body.get("dimensions") or behaviour.dims) for t in texts]
        coded = body.get("encoding_format") == "base64"
        data = [
            {"object": "embedding", "index": i, "embedding": as_base64(v) if coded else v}
            for i, v in enumerate(vectors)
        ]
        reply: dict[str, Any] = {"object": "list", "model": behaviour.embed_model, "data": data}
        if behaviour.usage != "never":
            reply["usage"] = usage(served, "none")
            served.reported = True
        return await talk.send_whole(reply, fault)

    async def _models(self, request: web.Request) -> web.Response:
        b = self.behaviour
        shared = {"object": "model", "created": 0, "owned_by": "fake"}
        models = [
            {"id": b.model, "kind": "chat", "max_model_len": b.max_model_len, **shared},
            {"id": b.embed_model, "kind": "embedding", "max_model_len": b.max_model_len, **shared},
        ]
        return web.json_response({"object": "list", "data": models})

    async def _tokenize(self, request: web.Request) -> web.Response:
        text = str((await request.json()).get("prompt", ""))
        ids = [sum(token.encode()) for token in tokens_of(text)]
        limit = self.behaviour.max_model_len
        return web.json_response({"count": count(text), "max_model_len": limit, "tokens": ids})

    async def _health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _report(self, request: web.Request) -> web.Response:
        for served in self.bill.of():
            if served.request_id == request.match_info["request_id"] and served.done:
                if not self.behaviour.reports:
                    break
                told = usage(served, "openai") | {"agentmem": engine_usage(served)}
                return web.json_response({"usage": told})
        return web.json_response(error_body("no such request", "not_found"), status=404)
