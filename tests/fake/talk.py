"""One text request: what the pretended model writes, token by token, and how it may fail."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.fake.behaviour import Fault
from tests.fake.bill import Served
from tests.fake.shapes import Written, first_chunks, last_chunks, piece_chunk, usage, whole
from tests.fake.words import default_reply, prompt_tokens, tokens_of

if TYPE_CHECKING:
    from tests.fake.server import FakeUpstream


def error_body(message: str, code: str, kind: str = "invalid_request_error") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


class FaultError(Exception):
    """An error reply."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(status)
        self.status, self.body = status, body


class Talk:
    """Serves one request of the fake."""

    def __init__(self, fake: FakeUpstream, served: Served, request: web.Request) -> None:
        self._fake, self._served, self._request = fake, served, request
        self._behaviour, self._body = fake.behaviour, served.body

    async def reply(self) -> web.StreamResponse:
        fault = await self.meet_fault()
        self._read_prompt()
        written = self._write()
        if self._body.get("stream") is True:
            return await self._stream(written, fault)
        for place, _ in enumerate(written.pieces):
            await self._pause(place)
            self._served.output_tokens += 1
        self._served.output_tokens += sum(_call_tokens(call) for call in written.tool_calls)
        told = self._told(streamed=False)
        model = self._body.get("model") or self._behaviour.model
        return await self.send_whole(whole(self._served, written, model, told), fault)

    async def meet_fault(self) -> Fault | None:
        """Fail at once if that is planned; otherwise the fault to meet on the way, or None."""
        fault = self._fake.fault_for(self._served)
        if fault is None:
            return None
        if fault.kind == "status":
            kind = "server_error" if fault.status >= 500 else "requests"
            raise FaultError(fault.status, error_body(fault.message, "planned", kind))
        if fault.kind == "overflow":
            raise self._overflow()
        if fault.kind == "hang":
            await asyncio.sleep(fault.hang_s)
        if fault.kind in ("hang", "reset"):
            self._break()
            raise ConnectionResetError
        return fault

    async def send_whole(self, body: Any, fault: Fault | None) -> web.StreamResponse:
        """A reply in one piece, or the half of one that a fault leaves of it."""
        raw = json.dumps(body).encode()
        self._served.status = 200
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        if fault is not None and fault.kind == "malformed":
            raw = raw[: len(raw) // 2]
        response.content_length = len(raw)
        await response.prepare(self._request)
        if fault is not None and fault.kind == "truncate":
            await response.write(raw[: len(raw) // 2])
            self._break()
            raise ConnectionResetError
        await response.write(raw)
        await response.write_eof()
        return response

    def _read_prompt(self) -> None:
        """Put the prompt on the bill, its cached part by what the session read before."""
        prompt, served = prompt_tokens(self._body), self._served
        if len(prompt) + (self._max_tokens() or 0) > self._behaviour.max_model_len:
            raise self._overflow()
        served.input_tokens = len(prompt)
        if self._behaviour.cache == "none":
            return
        session = served.headers.get("x-session-id")
        for other in self._fake.bill.of("chat", "completion", "responses"):
            if other is served or other.headers.get("x-session-id") != session:
                continue
            shared = _shared(prompt, prompt_tokens(other.body))
            served.cached_tokens = max(served.cached_tokens, min(shared, len(prompt) - 1))
        if self._behaviour.cache == "anthropic":
            served.cache_write_tokens = (len(prompt) - served.cached_tokens) // 4 * 4

    def _write(self) -> Written:
        """What the model would say, cut at `max_tokens`."""
        script = self._behaviour.on_chat
        said = script(self._body) if script else self._forced_call() or default_reply(self._body)
        if isinstance(said, dict):
            calls = tuple(said.get("tool_calls") or ())
            pieces = tuple(tokens_of(said.get("content") or ""))
            return Written(pieces, "tool_calls" if calls else "stop", calls)
        pieces, limit = tuple(tokens_of(said)), self._max_tokens()
        if limit is not None and len(pieces) > limit:
            return Written(pieces[:limit], "length")
        return Written(pieces, "stop")

    def _forced_call(self) -> dict[str, Any] | None:
        """A call of the tool that the request insists on."""
        choice, tools = self._body.get("tool_choice"), self._body.get("tools")
        if not tools or choice in (None, "auto", "none"):
            return None
        named = choice if isinstance(choice, dict) else tools[0]
        function = {"name": named["function"]["name"], "arguments": "{}"}
        return {"tool_calls": [{"id": "call-0", "type": "function", "function": function}]}

    def _max_tokens(self) -> int | None:
        for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"):
            if isinstance(limit := self._body.get(name), int):
                return limit
        return None

    async def _stream(self, written: Written, fault: Fault | None) -> web.StreamResponse:
        served = self._served
        model = self._body.get("model") or self._behaviour.model
        served.status = 200
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(self._request)
        for chunk in first_chunks(served, model):
            await response.write(chunk)
        early = fault is not None and fault.kind in ("truncate", "silent_end")
        for place, piece in enumerate(written.pieces):
            if early and fault is not None and place == fault.after_tokens:
                if fault.kind == "truncate":
                    self._break()
                    raise ConnectionResetError
                await response.write_eof()
                return response
            await self._pause(place)
            served.output_tokens += 1
            chunk = piece_chunk(served, model, piece)
            if fault is not None and fault.kind == "malformed" and place == fault.after_tokens:
                chunk = chunk[: len(chunk) // 2] + b"\n\n"
            await response.write(chunk)
        served.output_tokens += sum(_call_tokens(call) for call in written.tool_calls)
        told, inline = self._told(streamed=True), self._behaviour.usage_in_last_chunk
        for chunk in last_chunks(served, written, model, told, inline):
            await response.write(chunk)
            await asyncio.sleep(self._behaviour.usage_pause_s)
        await response.write_eof()
        return response

    async def _pause(self, place: int) -> None:
        delay_s = self._behaviour.token_s if place else self._behaviour.first_token_s
        if delay_s:
            await asyncio.sleep(delay_s)

    def _told(self, *, streamed: bool) -> dict[str, Any] | None:
        """The usage object to send, None where this server would stay silent."""
        options = self._body.get("stream_options") or {}
        asked = not streamed or options.get("include_usage") is True
        asked = asked or self._served.endpoint == "responses"
        mode = self._behaviour.usage
        if mode == "never" or (mode == "asked" and not asked):
            return None
        self._served.reported = True
        return usage(self._served, self._behaviour.cache)

    def _overflow(self) -> FaultError:
        limit = self._behaviour.max_model_len
        message = f"This model's maximum context length is {limit} tokens; the prompt is longer."
        return FaultError(400, error_body(message, "context_length_exceeded"))

    def _break(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()


def _shared(a: list[str], b: list[str]) -> int:
    """Length of the common prefix."""
    for place, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return place
    return min(len(a), len(b))


def _call_tokens(call: dict[str, Any]) -> int:
    function = call.get("function") or {}
    return len(tokens_of(f"{function.get('name')} {function.get('arguments')}"))
