"""POST /v1/sessions/{id}/export and /v1/sessions/import: sessions as files of one folder."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from agentmem.engine.api.errors import ApiError, bad_request
from agentmem.engine.api.fields import Fields, read_fields
from agentmem.engine.api.session_routes import missing, named, tenant_of
from agentmem.engine.api.state import SERVED, Mover, Served
from agentmem.engine.sessions import check_session
from agentmem.errors import DataError

if TYPE_CHECKING:
    from agentmem.engine.kv.transfer import Transferred


async def export(request: web.Request) -> web.Response:
    """Write a session's file; with `move` the engine that imports it owns the session from then."""
    served, body = request.app[SERVED], await read_fields(request)
    mover, path, move = _mover(served), session_file(served, body), body.flag("move")
    session_id, tenant = named(request), tenant_of(request)
    if served.only_chat().core.session(session_id, tenant) is None:
        raise missing(served, session_id, tenant)
    done = await _run(lambda: mover.export_session(session_id, path, tenant=tenant, move=move))
    return web.json_response(entry(done, "session.exported", path))


async def import_(request: web.Request) -> web.Response:
    """Take in a session's file, under its own id or `session_id`."""
    served, body = request.app[SERVED], await read_fields(request)
    mover, path = _mover(served), session_file(served, body)
    session_id, tenant = check_session(body.text("session_id")), tenant_of(request)
    done = await _run(lambda: mover.import_session(path, tenant=tenant, session_id=session_id))
    return web.json_response(entry(done, "session.imported", path))


def _mover(served: Served) -> Mover:
    if served.mover is None:
        raise ApiError(501, "this engine moves no sessions", code="unsupported")
    return served.mover


def session_file(served: Served, body: Fields) -> Path:
    """`path` as a file inside the server's folder; 403 without one, or for a place outside.

    A request never chooses where on this machine something is written.
    """
    if served.session_dir is None:
        message = "this server was started without --session-dir, so it moves no sessions"
        raise ApiError(403, message, code="sessions_stay")
    name = body.text("path")
    if not name or "\x00" in name or Path(name).name.startswith("."):
        raise bad_request("path must be the name of a file in the session folder", "path")
    folder = served.session_dir.resolve()
    path = (folder / name).resolve()
    if path == folder or not path.is_relative_to(folder):
        message = f"path must be inside the session folder {served.session_dir}"
        raise ApiError(403, message, param="path", code="outside_session_dir")
    return path


def entry(done: Transferred, kind: str, path: Path) -> dict[str, Any]:
    """A transfer as JSON; `epoch` counts the session's owners."""
    return {
        "id": done.session_id,
        "object": kind,
        "path": str(path),
        "tokens": done.tokens,
        "blocks": done.blocks,
        "bytes": done.size_bytes,
        "epoch": done.epoch,
        "moved": done.moved,
    }


async def _run(work: Callable[[], Transferred]) -> Transferred:
    """Off the event loop; 409 with the reason for a file or session that does not allow it."""
    try:
        return await asyncio.get_running_loop().run_in_executor(None, work)
    except DataError as err:
        raise ApiError(409, str(err), code="transfer_refused") from None
    except OSError as err:  # the folder cannot be written, the disk is full, the name is too long
        message = f"the session folder: {err.strerror or err}"
        if err.errno == errno.ENAMETOOLONG:
            raise bad_request(message, "path") from None
        raise ApiError(500, message, code="session_dir_failed") from None
