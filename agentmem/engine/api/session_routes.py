"""GET /v1/sessions, GET and DELETE /v1/sessions/{id}: what the engine keeps for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from agentmem.engine.api.errors import ApiError
from agentmem.engine.api.state import SERVED, ChatModel, Served
from agentmem.engine.sessions import check_session, resolve_tenant

if TYPE_CHECKING:
    from agentmem.engine.kv.registry import SessionStats


async def sessions(request: web.Request) -> web.Response:
    """The tenant's sessions, the one used last first."""
    model, tenant = _asked(request)
    known = sorted(model.core.sessions(tenant), key=lambda s: -s.last_use_unix_s)
    return web.json_response({"object": "list", "data": [entry(one) for one in known]})


async def session(request: web.Request) -> web.Response:
    """One session; 404 when the tenant has none of that id."""
    model, tenant = _asked(request)
    return web.json_response(entry(_known(request, model, tenant)))


async def drop(request: web.Request) -> web.Response:
    """Forget a session and free what no other session shares. Its running requests go on."""
    model, tenant = _asked(request)
    known = _known(request, model, tenant)
    freed = model.core.drop_session(known.session_id, tenant)
    told = {"id": known.session_id, "object": "session.deleted", "deleted": True}
    return web.json_response({**told, "freed_bytes": freed})


def entry(stats: SessionStats) -> dict[str, Any]:
    """A session as JSON: counts in tokens and bytes, times as Unix seconds."""
    return {
        "id": stats.session_id,
        "object": "session",
        "requests": stats.requests,
        "running": stats.running,
        "cached_tokens": stats.cached_tokens,
        "computed_tokens": stats.computed_tokens,
        "generated_tokens": stats.generated_tokens,
        "hit_rate": stats.hit_rate,
        "blocks_held": stats.blocks_held,
        "bytes_held": stats.bytes_held,
        "bytes_unique": stats.bytes_unique,
        "created": stats.created_unix_s,
        "last_used": stats.last_use_unix_s,
    }


def named(request: web.Request) -> str:
    """The session id of the path."""
    return check_session(request.match_info["id"]) or ""


def tenant_of(request: web.Request) -> str | None:
    """Whose sessions are asked for: query `cache_salt`, its header, the API key."""
    salt = request.query.get("cache_salt")
    keyed = bool(request.app[SERVED].keys)
    return resolve_tenant({"cache_salt": salt}, request.headers, keyed)


def missing(served: Served, session_id: str, tenant: str | None) -> ApiError:
    """What a session gets that does not exist, is another's (404), or has moved (409)."""
    if served.mover is not None and served.mover.session_moved(session_id, tenant):
        message = f"session {session_id!r} has moved to another engine"
        return ApiError(409, message, code="session_moved")
    return ApiError(404, f"no session {session_id!r}", code="session_not_found")


def _asked(request: web.Request) -> tuple[ChatModel, str | None]:
    return request.app[SERVED].only_chat(), tenant_of(request)


def _known(request: web.Request, model: ChatModel, tenant: str | None) -> SessionStats:
    session_id = named(request)
    stats = model.core.session(session_id, tenant)
    if stats is None:
        raise missing(request.app[SERVED], session_id, tenant)
    return stats
