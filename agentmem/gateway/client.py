"""The client's side of one exchange: its address, and its reply while it still listens."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from aiohttp import web
from multidict import CIMultiDict


@dataclass(frozen=True, slots=True)
class Address:
    """`/s/<scope>[/<operation>]/v1/<tail>`; the tail stays as it was spelled."""

    scope: str
    operation: str | None
    tail: str


def parse_address(raw_path: str) -> Address | None:
    """Address of a request path as sent (percent-encoded); None for any other path."""
    parts = raw_path.split("/")
    if len(parts) < 4 or parts[:2] != ["", "s"]:
        return None
    if parts[3] == "v1":
        return Address(unquote(parts[2]), None, "/".join(parts[4:]))
    if len(parts) > 4 and parts[4] == "v1":
        return Address(unquote(parts[2]), unquote(parts[3]), "/".join(parts[5:]))
    return None


def error_reply(status: int, code: str, message: str) -> web.Response:
    """An error in the shape that OpenAI clients show to their users."""
    error = {"message": message, "type": "agentmem_gateway", "param": None, "code": code}
    return web.json_response({"error": error}, status=status)


class ClientSide:
    """The reply on its way to the client. Once the client has left, writes go nowhere."""

    def __init__(self, request: web.BaseRequest) -> None:
        self._request = request
        self.response: web.StreamResponse = web.Response(status=502)
        self.gone = False

    async def begin(self, status: int, headers: CIMultiDict[str], length: int | None) -> None:
        """Send the reply's head; without a length the body is chunked."""
        self.response = web.StreamResponse(status=status, headers=headers)
        if length is not None:
            self.response.content_length = length
        if not self.gone:
            try:
                await self.response.prepare(self._request)
            except ConnectionError:
                self.gone = True

    def whole(self, status: int, headers: CIMultiDict[str], body: bytes) -> None:
        """Have head and body sent in one piece by `end`."""
        self.response = web.Response(status=status, headers=headers, body=body)

    async def write(self, data: bytes) -> None:
        if self.gone or not data:
            return
        try:
            await self.response.write(data)
        except ConnectionError:
            self.gone = True

    async def end(self) -> None:
        """Finish the reply; returns when its last byte is handed to the system."""
        if self.gone:
            return
        try:
            await self.response.prepare(self._request)  # nothing new for a reply already begun
            await self.response.write_eof()
        except ConnectionError:
            self.gone = True

    def cut(self) -> None:
        """Break the connection: the client must not take half a reply for a whole one."""
        if (transport := self._request.transport) is not None:
            transport.close()
