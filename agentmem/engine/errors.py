"""Errors of one request, as opposed to errors of the engine."""

from __future__ import annotations

from typing import Literal

from agentmem.errors import EngineError

RequestFault = Literal[
    "context_length_exceeded",
    "invalid_prompt",
    "invalid_sampling",
    "duplicate_id",
    "closed",
    "overloaded",
    "session_moved",
]


class RequestError(EngineError):
    """A request that cannot be run as given; `code` decides a server's answer.

    400 but for `closed` (503), `overloaded` (429, after `retry_after_s` it may be tried again) and
    `session_moved` (409: another engine owns the session now).
    """

    def __init__(
        self,
        code: RequestFault,
        message: str,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code: RequestFault = code
        self.param = param
        self.retry_after_s = retry_after_s


class EmbeddingStoppedError(EngineError):
    """An embedding computation was told to end before its end."""

    def __init__(self) -> None:
        super().__init__("the computation was stopped")
