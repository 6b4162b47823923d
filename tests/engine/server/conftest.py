"""A real HTTP server on loopback around the fake core."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import openai
import pytest
from aiohttp import web

from agentmem.engine.api.app import build_app, drain
from agentmem.engine.api.limits import Keys, Limits
from agentmem.engine.api.state import ChatModel, EmbedModel, Served
from tests.engine.server.fakes import FakeCore, FakeEmbedder


@dataclass
class Reply:
    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)


class Server:
    """An application on its own thread and loop."""

    def __init__(self, core: Any, embedder: Any, **options: Any) -> None:
        self.core, self.embedder = core, embedder
        truncate = options.pop("truncate", True)
        limits = Limits(max_body_bytes=options.pop("max_body_bytes", 2**20))
        limits = replace(limits, **options.pop("limits", {}))
        keys = Keys(options.pop("keys", ()))
        self.served = Served(
            ChatModel(core) if core else None,
            EmbedModel(embedder, truncate=truncate) if embedder else None,
            limits=limits,
            keys=keys,
            **options,
        )
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = self._socket.getsockname()
        self.url = f"http://127.0.0.1:{self.address[1]}"
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(10)

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        app = build_app(self.served)
        self._runner = web.AppRunner(
            app, handler_cancellation=True, shutdown_timeout=0.5, access_log=None
        )

        async def start() -> None:
            await self._runner.setup()
            await web.SockSite(self._runner, self._socket).start()
            ready.set()

        self._loop.run_until_complete(start())
        self._loop.run_forever()
        self._loop.run_until_complete(self._runner.cleanup())
        self._loop.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        if self.core:
            self.core.close()

    def drain(self, hurry: bool = False) -> concurrent.futures.Future[None]:
        """Begin the end, as SIGTERM does; the server still listens."""
        now = asyncio.Event()
        if hurry:
            now.set()
        return asyncio.run_coroutine_threadsafe(drain(self.served, now), self._loop)

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Reply:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._ask(urllib.request.Request(self.url + path, data, headers or {}))

    def get(self, path: str, headers: dict[str, str] | None = None) -> Reply:
        return self._ask(urllib.request.Request(self.url + path, headers=headers or {}))

    def delete(self, path: str, headers: dict[str, str] | None = None) -> Reply:
        request = urllib.request.Request(self.url + path, headers=headers or {}, method="DELETE")
        return self._ask(request)

    def stream(self, path: str, body: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
        """Data events of a stream, and its raw lines."""
        reply = self.post(path, {**body, "stream": True})
        assert reply.status == 200, reply
        lines = [line for line in reply.body.split("\n") if line]
        assert lines[-1] == "data: [DONE]"
        return [json.loads(x[6:]) for x in lines[:-1] if x.startswith("data: ")], lines

    def client(self, **options: Any) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="k", max_retries=0, **options)

    def _ask(self, request: urllib.request.Request) -> Reply:
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                text, status, headers = reply.read().decode(), reply.status, dict(reply.headers)
        except urllib.error.HTTPError as err:
            text, status, headers = err.read().decode(), err.code, dict(err.headers)
        try:
            return Reply(status, json.loads(text), headers)
        except ValueError:
            return Reply(status, text, headers)


@pytest.fixture
def start() -> Iterator[Callable[..., Server]]:
    """Start a server with the given core and options; stopped after the test."""
    servers: list[Server] = []

    def make(core: Any = None, embedder: Any = None, **options: Any) -> Server:
        servers.append(Server(core, embedder, **options))
        return servers[-1]

    yield make
    for server in servers:
        server.stop()


@pytest.fixture
def server(start: Callable[..., Server]) -> Server:
    return start(FakeCore(), FakeEmbedder())
