"""The response of a generating request, in one piece or as a stream of chunks."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from agentmem.engine.api.answers import Answer
from agentmem.engine.api.errors import ApiError, bad_request
from agentmem.engine.api.fields import Fields
from agentmem.engine.api.generation import Generation
from agentmem.engine.api.sse import EventStream
from agentmem.engine.api.usage import usage


@dataclass(frozen=True, slots=True)
class Shape:
    """`object` names of the whole and of a chunk."""

    whole: str
    chunk: str


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Whether to stream, and whether the last chunk carries the usage."""

    on: bool = False
    usage: bool = False


def read_stream(body: Fields) -> StreamOptions:
    """`stream` and `stream_options.include_usage`."""
    on, options = body.flag("stream"), body.table("stream_options")
    if options and not on:
        raise bad_request("stream_options needs stream to be true", "stream_options")
    return StreamOptions(on, Fields(options or {}).flag("include_usage"))


async def reply(
    request: web.Request,
    generation: Generation,
    answers: Sequence[Answer],
    shape: Shape,
    model: str,
    stream: StreamOptions,
) -> web.StreamResponse:
    """Wait for the engine and answer. `answers[i]` belongs to the generation's request `i`."""
    writer = _Reply(generation, answers, shape, model, stream)
    return await (writer.stream(request) if stream.on else writer.whole())


class _Reply:
    def __init__(
        self,
        generation: Generation,
        answers: Sequence[Answer],
        shape: Shape,
        model: str,
        stream: StreamOptions,
    ) -> None:
        self._generation, self._answers, self._shape = generation, answers, shape
        self._options = stream
        self._head = {"id": generation.id, "created": int(time.time()), "model": model}

    async def whole(self) -> web.StreamResponse:
        reasons: list[str | None] = [None] * len(self._answers)
        async for at, delta in self._generation.deltas():
            answer = self._answers[at]
            answer.feed(delta.text)
            if delta.finish_reason:
                answer.finish()
                reasons[at] = answer.reason(delta.finish_reason)
        choices = [
            {"index": at, **answer.whole(), "logprobs": None, "finish_reason": reasons[at]}
            for at, answer in enumerate(self._answers)
        ]
        told = {"choices": choices, "usage": usage(self._generation.told)}
        body = {**self._head, "object": self._shape.whole, **told}
        return web.json_response(body, headers={"X-Request-Id": self._generation.id})

    async def stream(self, request: web.Request) -> web.StreamResponse:
        events = EventStream(request, self._generation.id)
        await events.open()
        failure: ApiError | None = None
        try:
            await self._chunks(events)
        except ApiError as err:
            # The status line is sent: what goes wrong now can only be told inside the stream.
            failure = err
        return await events.close(failure)

    async def _chunks(self, events: EventStream) -> None:
        for at, answer in enumerate(self._answers):
            if opening := answer.opening():
                await events.send(self._chunk(at, opening))
        async for at, delta in self._generation.deltas():
            answer = self._answers[at]
            for fields in answer.feed(delta.text):
                await events.send(self._chunk(at, fields))
            if delta.finish_reason:
                for fields in answer.finish():
                    await events.send(self._chunk(at, fields))
                await events.send(
                    self._chunk(at, answer.last(), answer.reason(delta.finish_reason))
                )
        told = self._generation.told
        if self._options.usage:
            await events.send(self._frame({"choices": [], "usage": usage(told)}))
        else:
            # Not asked for, so not in a chunk; but nothing that was computed goes unsaid.
            await events.comment(f"usage.agentmem {json.dumps(told)}")

    def _chunk(self, at: int, fields: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": at, **fields, "logprobs": None, "finish_reason": reason}
        return self._frame({"choices": [choice]} | ({"usage": None} if self._options.usage else {}))

    def _frame(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {**self._head, "object": self._shape.chunk, **fields}
