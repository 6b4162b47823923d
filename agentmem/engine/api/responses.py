"""POST /v1/responses: stateless; nothing is stored, so all input comes with the request."""

from __future__ import annotations

import time
from typing import Any

from aiohttp import web

from agentmem.engine.api.chat import Conversation, read_conversation
from agentmem.engine.api.errors import FORESEEN, ApiError, as_api_error
from agentmem.engine.api.fields import Fields, read_fields
from agentmem.engine.api.generation import Generation
from agentmem.engine.api.limits import within
from agentmem.engine.api.replies import voices
from agentmem.engine.api.response_input import as_chat
from agentmem.engine.api.response_output import ResponseOutput, Told
from agentmem.engine.api.scores import ScoreLog
from agentmem.engine.api.sse import EventStream
from agentmem.engine.api.state import SERVED
from agentmem.engine.api.usage import usage
from agentmem.engine.request import Delta

RENAMED = {"messages": "input", "response_format": "text.format", "max_tokens": "max_output_tokens"}


async def responses(request: web.Request) -> web.StreamResponse:
    """Answer, in one piece or as OpenAI's named events."""
    body, served = await read_fields(request), request.app[SERVED]
    try:
        asked = await read_conversation(request, as_chat(body), served, "resp")
    except ApiError as err:
        for ours, theirs in RENAMED.items():
            if err.param and err.param.startswith(ours):
                err.param = err.param.replace(ours, theirs, 1)
        raise
    stream = body.flag("stream")
    async with Generation(
        served, asked.model, asked.request_id, asked.requests, asked.ignored
    ) as generation:
        writer = _Writer(generation, asked, body)
        return await (writer.stream(request) if stream else writer.whole())


class _Writer:
    def __init__(self, generation: Generation, asked: Conversation, body: Fields) -> None:
        self._generation, self._asked, self._body = generation, asked, body
        self._output = ResponseOutput(asked.names, asked.digest)
        (voice,) = voices([asked.answer(0)], asked.model, asked.sampling, "chat", asked.shown)
        self._scores: ScoreLog | None = voice.scores
        self._created, self._sequence = int(time.time()), 0
        self._status, self._reason = "in_progress", ""

    async def whole(self) -> web.StreamResponse:
        async with within(self._generation.timeout_s):
            async for _, delta in self._generation.deltas():
                self._take(delta)
        body = self._response(self._generation.told)
        return web.json_response(body, headers={"X-Request-Id": self._generation.id})

    async def stream(self, request: web.Request) -> web.StreamResponse:
        events = EventStream(request, self._generation.id)
        await events.open()
        try:
            async with within(self._generation.timeout_s):
                for kind in ("response.created", "response.in_progress"):
                    await self._send(events, {"type": kind, "response": self._response(None)})
                async for _, delta in self._generation.deltas():
                    for event in self._take(delta):
                        await self._send(events, event)
                whole = self._response(self._generation.told)
                await self._send(events, {"type": f"response.{self._status}", "response": whole})
        except FORESEEN as err:
            error = as_api_error(err)
            self._status = "failed"
            told = {"code": error.code or "server_error", "message": error.message}
            failed = {**self._response(None), "error": told}
            await self._send(events, {"type": "response.failed", "response": failed})
        return await events.close(last="")

    def _take(self, delta: Delta) -> list[Told]:
        logprobs: list[Any] = []
        if self._scores is not None:
            self._scores.take(delta)
            logprobs = (self._scores.chunk() or {}).get("content", [])
        events = self._output.feed(delta.text, logprobs)
        if delta.finish_reason:
            complete = delta.finish_reason != "length"
            self._status = "completed" if complete else "incomplete"
            events += self._output.finish(complete)
        return events

    async def _send(self, events: EventStream, event: Told) -> None:
        numbered = {"type": event["type"], "sequence_number": self._sequence, **event}
        self._sequence += 1
        await events.send(numbered, event["type"])

    def _response(self, told: dict[str, Any] | None) -> Told:
        body, sampling = self._body, self._asked.sampling
        cut = {"reason": "max_output_tokens"} if self._status == "incomplete" else None
        return {
            "id": self._generation.id,
            "object": "response",
            "created_at": self._created,
            "status": self._status,
            "error": None,
            "incomplete_details": cut,
            "instructions": body.get("instructions"),
            "max_output_tokens": body.get("max_output_tokens"),
            "metadata": body.get("metadata") or {},
            "model": self._asked.model.name,
            "output": self._output.items,
            "parallel_tool_calls": self._asked.use.several,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "store": False,
            "temperature": sampling.temperature,
            "text": body.get("text") or {"format": {"type": "text"}},
            "tool_choice": body.get("tool_choice") or "auto",
            "tools": body.get("tools") or [],
            "top_p": sampling.top_p,
            "truncation": "disabled",
            "usage": None if told is None else response_usage(told),
            "user": body.get("user"),
        }


def response_usage(told: dict[str, Any]) -> dict[str, Any]:
    """The same counts as elsewhere under the names of this surface."""
    same = usage(told)
    return {
        "input_tokens": same["prompt_tokens"],
        "input_tokens_details": {
            "cached_tokens": told["cached_tokens"],
            "cache_write_tokens": told["uncached_tokens"],
        },
        "output_tokens": same["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": same["total_tokens"],
        "agentmem": told,
    }
