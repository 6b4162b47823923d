"""GET /v1/models, /v1/models/{id}, /health, /ready, and the accounts of past requests."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from agentmem.engine.api.errors import ApiError
from agentmem.engine.api.state import SERVED, ChatModel, EmbedModel, Served


async def models(request: web.Request) -> web.Response:
    """What is served, and how."""
    return web.json_response({"object": "list", "data": entries(request.app[SERVED])})


async def model(request: web.Request) -> web.Response:
    """One entry of the list."""
    name = request.match_info["name"]
    for entry in entries(request.app[SERVED]):
        if entry["id"] == name:
            return web.json_response(entry)
    raise ApiError(404, f"the model {name!r} does not exist", code="model_not_found")


async def health(request: web.Request) -> web.Response:
    """Alive, and how much is going on."""
    served = request.app[SERVED]
    embed = served.embed
    return web.json_response(
        {
            "status": "ok",
            "in_flight": len(served.ledger.in_flight),
            "finished": served.ledger.finished,
            "embed_requests": embed.requests if embed else 0,
            "embed_texts": embed.texts if embed else 0,
        }
    )


async def ready(request: web.Request) -> web.Response:
    """Whether new calls are taken; 503 once the server has been told to stop."""
    gate = request.app[SERVED].gate
    status, word = (503, "draining") if gate.draining else (200, "ready")
    return web.json_response({"status": word, "running": gate.running}, status=status)


async def past(request: web.Request) -> web.Response:
    """The account of a finished or abandoned request, by response id or `X-Request-Id`."""
    name = request.match_info["name"]
    served = request.app[SERVED]
    told = served.ledger.find(name, served.owner(request.headers))
    if told is None:
        raise ApiError(404, f"no account of request {name!r}", code="unknown_request")
    return web.json_response(told)


def entries(served: Served) -> list[dict[str, Any]]:
    """Entries of the model list, the generating model first."""
    listed = []
    if served.chat:
        listed.append(_entry(served.chat, "chat", _chat_facts(served.chat)))
    if served.embed:
        listed.append(_entry(served.embed, "embedding", _embed_facts(served.embed)))
    return listed


def _entry(model: ChatModel | EmbedModel, kind: str, ours: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": model.name,
        "object": "model",
        "created": 0,
        "owned_by": "agentmem",
        "max_model_len": model.window,
        "kind": kind,
        "agentmem": {**model.facts(), **ours},
    }


def _chat_facts(model: ChatModel) -> dict[str, Any]:
    core = model.core
    told = {"weights": core.weights, "threads": core.threads, "arch": core.arch}
    return {**told, "kv": core.kv, "notes": list(core.notes)}


def _embed_facts(model: EmbedModel) -> dict[str, Any]:
    return {"weights": model.embedder.weights, "dims": model.embedder.dims}
