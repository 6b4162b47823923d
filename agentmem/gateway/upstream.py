"""The way out: one pooled client to the model servers, and the headers that may travel."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from agentmem.gateway.options import GatewayOptions, Upstream
from agentmem.records import Endpoint

_IDLE_S = 4.0
"""Drop idle connections before common servers do (5 s): no request meets a closing socket."""
_READ_BYTES = 1 << 20
_HOP = {
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer"),
    *("proxy-connection", "transfer-encoding", "upgrade", "host", "content-length", "expect"),
}
_REQUEST_ONLY = {"authorization", "accept-encoding", "content-encoding", "cookie"}
_REPLY_ONLY = {"content-encoding", "date", "server", "set-cookie"}

UPSTREAM_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)


def request_headers(sent: Mapping[str, str], ours: Mapping[str, str]) -> CIMultiDict[str]:
    """The system's headers without those of its own connection and key, ours set over them."""
    kept = CIMultiDict(
        (k, v) for k, v in sent.items() if k.lower() not in _HOP and k.lower() not in _REQUEST_ONLY
    )
    kept.update(ours)
    kept["Accept-Encoding"] = "identity"
    return kept


def reply_headers(sent: Mapping[str, str]) -> CIMultiDict[str]:
    """The upstream's headers without those of its own connection."""
    return CIMultiDict(
        (k, v) for k, v in sent.items() if k.lower() not in _HOP and k.lower() not in _REPLY_ONLY
    )


class Forwarder:
    """Sends requests upstream. Every call leaves through `open`, and only there."""

    def __init__(self, upstream: Upstream, options: GatewayOptions) -> None:
        self._upstream = upstream
        self.open_road = asyncio.Event()
        """Cleared while the upstream restarts: new calls wait, those under way go on."""
        self.open_road.set()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(
                total=None,
                sock_connect=options.connect_timeout_s,
                sock_read=options.upstream_timeout_s,
            ),
            read_bufsize=_READ_BYTES,
            skip_auto_headers=("User-Agent", "Content-Type", "Accept"),
        )

    def target(self, endpoint: Endpoint, tail: str, query: str) -> tuple[URL, str | None]:
        """URL and key for a path below `/v1/`."""
        base, key = self._upstream.chat_url, self._upstream.api_key
        if endpoint == "embedding" and self._upstream.embed_url is not None:
            base, key = self._upstream.embed_url, self._upstream.embed_api_key
        url = f"{base.rstrip('/')}/{tail}" + (f"?{query}" if query else "")
        return URL(url, encoded=True), key

    async def open(
        self,
        method: str,
        target: tuple[URL, str | None],
        headers: CIMultiDict[str],
        body: bytes,
    ) -> aiohttp.ClientResponse:
        """Send one request; returns when the reply's head is there. Raises UPSTREAM_ERRORS."""
        await self.open_road.wait()
        url, key = target
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        return await self._session.request(
            method, url, data=body or None, headers=headers, allow_redirects=False
        )

    async def report(self, request_id: str, tries: int = 5, pause_s: float = 0.05) -> Any:
        """What the engine computed for a request whose client left; None if it does not say."""
        if self._upstream.report_url is None:
            return None
        url = f"{self._upstream.report_url.rstrip('/')}/{request_id}"
        for _ in range(tries):
            try:
                async with self._session.get(url) as response:
                    if response.status == 200:
                        return await response.json()
            except UPSTREAM_ERRORS:
                return None
            await asyncio.sleep(pause_s)
        return None

    async def close(self) -> None:
        await self._session.close()
