"""Errors as OpenAI clients expect them: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from agentmem.engine.errors import RequestError
from agentmem.engine.sessions import IdentityError
from agentmem.errors import AgentMemError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

STATUS = {"closed": 503, "overloaded": 429, "session_moved": 409}
"""Replies to the engine's refusals; all others are a 400."""
KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """A reply other than 200. `code` is the machine-readable reason, or None."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = dict(headers or {})
        if retry_after_s is not None:
            # Whole seconds, never zero: a client that takes it at its word must not spin.
            self.headers["Retry-After"] = str(max(1, math.ceil(retry_after_s)))

    def body(self) -> dict[str, Any]:
        """The JSON body of the reply."""
        kind = KINDS.get(self.status, "invalid_request_error")
        if self.status >= 500:
            kind = "server_error"
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": error}

    def response(self) -> web.Response:
        """The reply itself."""
        return web.json_response(self.body(), status=self.status, headers=self.headers)


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
        status = STATUS.get(err.code, 400)
        wait = err.retry_after_s
        return ApiError(status, str(err), param=err.param, code=err.code, retry_after_s=wait)
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
