"""The recording's file format: JSON lines, a header first, then one line per model call.

Version 1. A line counts once its newline is there, so a kill in the middle of a write costs that
line and no other. Bodies of requests are not in it, only their hash; replies are, in plain text.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from agentmem.errors import DataError
from agentmem.gateway.exchange import Exchange

FORMAT = 1
KEPT_HEADERS = ("content-type", "retry-after", "retry-after-ms", "x-should-retry")
"""Headers of a reply that steer a client; all others may name accounts or machines."""

End = Literal["whole", "broken", "left", "none"]
"""How a reply ended: all there, connection lost, client gone, or no reply at all."""


@dataclass(frozen=True, slots=True)
class Key:
    """Which reply: the request itself, and where in the run it was asked."""

    scope: str
    unit: str | None
    request: str
    """sha256 of method, path and body as they leave the gateway; knows nothing of the scope."""
    occurrence: int
    """How many equal requests of this scope and unit came before."""
    attempt: int
    """0, or the client library's retry."""

    @property
    def anywhere(self) -> Key:
        """The same request of the same scope, whatever unit it fell into."""
        return Key(self.scope, None, self.request, self.occurrence, self.attempt)


@dataclass(frozen=True, slots=True)
class Entry:
    """One recorded reply."""

    key: Key
    status: int | None
    headers: Mapping[str, str]
    length: int | None
    """The reply's content length; None for a stream or chunked body."""
    streamed: bool
    chunks: tuple[bytes, ...]
    end: End
    error: str | None
    report: Any
    """Usage that the server told later of a call whose client had left."""
    recorded_s: Mapping[str, float | None]
    """Latency and first token as recorded."""


def key_of(ex: Exchange) -> Key:
    """Key of a request that arrived, decided before anything is known of its reply."""
    request = hashlib.sha256(f"{ex.target}\n".encode("utf-8", "surrogateescape") + ex.out.body)
    scope, unit = ex.arrival.state.scope.scope, ex.arrival.slot.unit
    return Key(scope, unit, request.hexdigest(), ex.logical.occurrence, ex.attempt)


def entry_of(ex: Exchange) -> Entry:
    """What came back for a finished exchange."""
    end: End = "whole"
    if ex.status is None and ex.outcome != "abandoned":
        end = "none"
    elif ex.outcome == "abandoned":
        end = "left"
    elif ex.broken:
        end = "broken"
    end_s = ex.start_s if ex.end_s is None else ex.end_s
    first_s = None if ex.first_token_s is None else ex.first_token_s - ex.start_s
    chunks = tuple(ex.kept) if ex.streamed else (b"".join(ex.kept),)
    headers = {k.lower(): v for k, v in ex.headers.items() if k.lower() in KEPT_HEADERS}
    return Entry(
        key_of(ex), ex.status, headers, ex.length, ex.streamed, chunks, end, ex.error, ex.report,
        {"latency_s": end_s - ex.start_s, "first_token_s": first_s},
    )  # fmt: skip


def dump(entry: Entry) -> dict[str, Any]:
    """JSON object of an entry."""
    body, key = b"".join(entry.chunks), entry.key
    line = {
        "scope": key.scope,
        "unit": key.unit,
        "request": key.request,
        "occurrence": key.occurrence,
        "attempt": key.attempt,
        "status": entry.status,
        "headers": dict(entry.headers),
        "length": entry.length,
        "sizes": [len(chunk) for chunk in entry.chunks] if entry.streamed else None,
        "end": entry.end,
        "error": entry.error,
        "report": entry.report,
        **entry.recorded_s,
        "crc32": zlib.crc32(body),
    }
    try:
        return line | {"body": body.decode()}
    except UnicodeDecodeError:
        return line | {"body_base64": base64.b64encode(body).decode()}


def parse(line: Mapping[str, Any]) -> Entry:
    """Inverse of `dump`. ValueError, KeyError or TypeError for what is no entry or was damaged."""
    coded = line.get("body_base64")
    body = line["body"].encode() if coded is None else base64.b64decode(coded, validate=True)
    if zlib.crc32(body) != line["crc32"]:
        raise ValueError("the reply does not match its checksum")
    sizes, chunks = line["sizes"], [body]
    if sizes is not None:
        edges = list(itertools.accumulate(sizes, initial=0))
        if edges[-1] != len(body):
            raise ValueError("the chunks do not add up to the reply")
        chunks = [body[a:b] for a, b in itertools.pairwise(edges)]
    return Entry(
        parse_key(line), line["status"], line["headers"], line["length"], sizes is not None,
        tuple(chunks), line["end"], line["error"], line["report"],
        {name: line[name] for name in ("latency_s", "first_token_s")},
    )  # fmt: skip


def parse_key(line: Mapping[str, Any]) -> Key:
    return Key(*(line[name] for name in ("scope", "unit", "request", "occurrence", "attempt")))


def parse_header(raw: bytes, where: object) -> dict[str, Any]:
    """The first line. DataError when this is no recording, or one of another version."""
    try:
        header = json.loads(raw)
        version = header["agentmem_recording"]
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{where}: not a recording of agentmem") from None
    if version != FORMAT:
        raise DataError(f"{where}: recording format {version!r}; this version reads {FORMAT}")
    return dict(header)
