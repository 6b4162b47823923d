"""What a server takes at most, and who may ask: keys, places, time."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from agentmem.engine.api.errors import ApiError
from agentmem.engine.sessions import bearer
from agentmem.errors import UsageError

RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one server. Times in seconds; None is no bound."""

    max_body_bytes: int = 32 * 2**20
    max_concurrency: int | None = None
    """Model calls that are answered at a time; more get a 429."""
    timeout_s: float | None = None
    """How long one model call may take, waiting included."""
    upload_s: float = 60.0
    """How long a client may take to send its body."""
    grace_s: float = 2.0
    """How long calls may go on once the server is told to stop."""


LIMITS = web.AppKey("limits", Limits)


@asynccontextmanager
async def within(limit_s: float | None) -> AsyncIterator[None]:
    """ApiError 504 when the body takes longer than `limit_s`; what it held is let go."""
    try:
        async with asyncio.timeout(limit_s) as scope:
            yield
    except TimeoutError:
        if not scope.expired():
            raise
        message = f"not answered within this server's limit of {limit_s:g} seconds"
        raise ApiError(504, message, code="timeout") from None


class Keys:
    """The API keys that are let in; none at all lets everyone in. Only digests are kept."""

    def __init__(self, keys: Sequence[str] = ()) -> None:
        self._digests = [_digest(key) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def check(self, headers: Mapping[str, str]) -> None:
        """ApiError 401 for a missing or unknown key. Takes the same time whichever key is wrong."""
        if not self._digests:
            return
        given = _digest(bearer(headers) or "")
        found = False
        for known in self._digests:
            found |= hmac.compare_digest(given, known)
        if not found:
            raise ApiError(
                401,
                "this server needs an API key: send header `Authorization: Bearer KEY`",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )


class Gate:
    """Counts the model calls in progress and says no when there are too many, or at the end."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self.running = 0
        self.draining = False
        """No new calls; those in progress go on."""
        self.stopped = False
        """Calls in progress are being ended."""

    def enter(self) -> AbstractContextManager[None]:
        """A place to hold; ApiError 503 while the server ends, 429 when all are taken."""
        if self.draining:
            raise shutting_down()
        if self._most is not None and self.running >= self._most:
            raise ApiError(
                429,
                f"this server answers {self._most} calls at a time; try again",
                code="too_many_requests",
                retry_after_s=RETRY_S,
            )
        return self._place()

    @contextmanager
    def _place(self) -> Iterator[None]:
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1


def shutting_down() -> ApiError:
    """What a call gets that the server's end cut off."""
    message = "the server is shutting down"
    return ApiError(503, message, code="shutting_down", retry_after_s=RETRY_S)


def read_keys(given: Sequence[str], file: Path | None, environment: str | None) -> list[str]:
    """Keys of the command line, of a file (one a line, # comments) and of a variable (commas)."""
    keys = list(given) + (environment or "").split(",")
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as err:
            raise UsageError(f"cannot read the keys of {file}: {err}") from None
        keys += [line for line in lines if not line.lstrip().startswith("#")]
    keys = [key.strip() for key in keys if key.strip()]
    if not all(key.isprintable() and key.isascii() and " " not in key for key in keys):
        raise UsageError("an API key is printable ASCII without blanks")
    if (given or file is not None or environment) and not keys:
        raise UsageError("no API key in what was given, so nobody could be let in")
    return keys


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()
