"""The web application: routes, error handling, limits, the end."""

from __future__ import annotations

import asyncio

from aiohttp import web

from agentmem.engine.api.chat import chat
from agentmem.engine.api.completions import completions
from agentmem.engine.api.embeddings import embeddings
from agentmem.engine.api.errors import json_errors
from agentmem.engine.api.generate import generate
from agentmem.engine.api.guard import guard
from agentmem.engine.api.limits import LIMITS
from agentmem.engine.api.metrics import metrics
from agentmem.engine.api.models import health, model, models, past, ready
from agentmem.engine.api.responses import responses
from agentmem.engine.api.session_files import export, import_
from agentmem.engine.api.session_routes import drop, session, sessions
from agentmem.engine.api.state import SERVED, Served
from agentmem.engine.api.tokens import detokenize, tokenize

LAST_S = 5.0
"""How long calls that were ended may take to say so."""


def build_app(served: Served) -> web.Application:
    """The application of a server. Handlers are to be cancelled when their client goes away."""
    app = web.Application(
        middlewares=[json_errors, guard], client_max_size=served.limits.max_body_bytes
    )
    app[SERVED], app[LIMITS] = served, served.limits
    app.add_routes(
        [
            web.post("/v1/chat/completions", chat),
            web.post("/v1/completions", completions),
            web.post("/v1/responses", responses),
            web.post("/v1/embeddings", embeddings),
            web.post("/v1/generate", generate),
            web.post("/inference/v1/generate", generate),
            web.get("/v1/models", models),
            web.get("/v1/models/{name:.+}", model),
            web.get("/v1/sessions", sessions),
            web.get("/v1/sessions/{id:.+}", session),
            web.delete("/v1/sessions/{id:.+}", drop),
            web.post("/v1/sessions/import", import_),
            web.post("/v1/sessions/{id:.+}/export", export),
            web.get("/health", health),
            web.get("/ready", ready),
            web.get("/metrics", metrics),
            web.post("/tokenize", tokenize),
            web.post("/detokenize", detokenize),
            web.get("/agentmem/requests/{name}", past),
        ]
    )
    return app


async def drain(served: Served, now: asyncio.Event) -> None:
    """Take no new calls; let those in progress end within the grace, then end them with an error.

    `now` cuts the grace short.
    """
    gate = served.gate
    gate.draining = True
    await _quiet(served, now, served.limits.grace_s)
    gate.stopped = True
    if served.chat:
        for request_id in list(served.ledger.in_flight):
            served.chat.core.cancel(request_id)
    await _quiet(served, asyncio.Event(), LAST_S)


async def _quiet(served: Served, now: asyncio.Event, limit_s: float) -> None:
    """Wait until no call is in progress, for `limit_s` at most."""
    clock = asyncio.get_running_loop().time
    until = clock() + limit_s
    while served.gate.running and not now.is_set() and clock() < until:
        await asyncio.sleep(0.02)
