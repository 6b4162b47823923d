"""Errors of one request, as opposed to errors of the engine."""

from __future__ import annotations

from typing import Literal

from agentmem.errors import EngineError

RequestFault = Literal[
    "context_length_exceeded", "invalid_prompt", "invalid_sampling", "duplicate_id", "closed"
]


class RequestError(EngineError):
    """A request that cannot be run as given; a server answers 400 with `code`."""

    def __init__(self, code: RequestFault, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code: RequestFault = code
        self.param = param
