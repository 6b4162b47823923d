"""The web application: routes, error handling, body limit."""

from __future__ import annotations

from aiohttp import web

from agentmem.engine.api.chat import chat
from agentmem.engine.api.completions import completions
from agentmem.engine.api.embeddings import embeddings
from agentmem.engine.api.errors import json_errors
from agentmem.engine.api.models import health, model, models, past
from agentmem.engine.api.state import SERVED, Served
from agentmem.engine.api.tokens import detokenize, tokenize

MAX_BODY_BYTES = 32 * 2**20


def build_app(served: Served, max_body_bytes: int = MAX_BODY_BYTES) -> web.Application:
    """The application of a server. Handlers are to be cancelled when their client goes away."""
    app = web.Application(middlewares=[json_errors], client_max_size=max_body_bytes)
    app[SERVED] = served
    app.on_shutdown.append(_abandon)
    app.add_routes(
        [
            web.post("/v1/chat/completions", chat),
            web.post("/v1/completions", completions),
            web.post("/v1/embeddings", embeddings),
            web.get("/v1/models", models),
            web.get("/v1/models/{name:.+}", model),
            web.get("/health", health),
            web.post("/tokenize", tokenize),
            web.post("/detokenize", detokenize),
            web.get("/agentmem/requests/{name}", past),
        ]
    )
    return app


async def _abandon(app: web.Application) -> None:
    """A server that is told to stop does not wait for long answers."""
    served = app[SERVED]
    if served.chat:
        for request_id in list(served.ledger.in_flight):
            served.chat.core.cancel(request_id)
