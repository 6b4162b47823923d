"""Errors as OpenAI clients expect them: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from agentmem.engine.errors import RequestError
from agentmem.engine.sessions import IdentityError
from agentmem.errors import AgentMemError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ApiError(Exception):
    """A reply other than 200. `code` is the machine-readable reason, or None."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code

    def body(self) -> dict[str, Any]:
        """The JSON body of the reply."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": error}

    def response(self) -> web.Response:
        """The reply itself."""
        return web.json_response(self.body(), status=self.status)


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """A 400 with the field at fault."""
    return ApiError(400, message, param=param, code=code)


FORESEEN = (ApiError, AgentMemError, IdentityError)
"""What a request may run into. Anything else is a defect: aiohttp logs it and answers 500."""


def as_api_error(err: ApiError | AgentMemError | IdentityError) -> ApiError:
    """The reply to a foreseen failure."""
    if isinstance(err, ApiError):
        return err
    if isinstance(err, RequestError):
        status = 503 if err.code == "closed" else 400
        return ApiError(status, str(err), param=err.param, code=err.code)
    if isinstance(err, IdentityError):
        return bad_request(str(err), err.param)
    return ApiError(500, str(err), code="engine_failed")


@web.middleware
async def json_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every failure of a handler, a wrong route or an oversized body into a JSON error."""
    try:
        return await handler(request)
    except web.HTTPRequestEntityTooLarge as err:
        limit = f"the body is larger than this server takes ({err.text})"
        return ApiError(413, limit, code="body_too_large").response()
    except web.HTTPException as err:
        message = f"{request.method} {request.path}: {err.reason}"
        code = "unknown_route" if err.status == 404 else None
        return ApiError(err.status, message, code=code).response()
    except FORESEEN as err:
        return as_api_error(err).response()
