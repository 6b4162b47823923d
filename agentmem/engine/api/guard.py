"""Before a handler runs: is the key known, is there a place, is the server still open."""

from __future__ import annotations

from aiohttp import web

from agentmem.engine.api.errors import ApiError, Handler
from agentmem.engine.api.state import SERVED

OPEN = frozenset({"/health", "/ready", "/metrics"})
"""Asked by monitors, which have no key; they tell nothing of any request."""
WORK = frozenset(
    {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/embeddings",
        "/v1/generate",
        "/inference/v1/generate",
    }
)
"""Model calls: what counts against the places, and what a shutdown waits for."""


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """401, 429 or 503 for what may not go on."""
    served = request.app[SERVED]
    if request.path not in OPEN:
        served.keys.check(request.headers)
    if request.method != "POST" or request.path not in WORK:
        return await handler(request)
    try:
        place = served.gate.enter()
    except ApiError as err:
        served.meter.count("http_refusals_total", reason=err.code or "")
        raise
    with place:
        return await handler(request)
