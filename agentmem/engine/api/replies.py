"""The response of a generating request, in one piece or as a stream of chunks."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from agentmem.engine.api.answers import Answer
from agentmem.engine.api.errors import FORESEEN, ApiError, as_api_error, bad_request
from agentmem.engine.api.fields import Fields
from agentmem.engine.api.generation import Generation
from agentmem.engine.api.limits import within
from agentmem.engine.api.sampling import Choices
from agentmem.engine.api.scores import ScoreLog, Style
from agentmem.engine.api.sse import EventStream
from agentmem.engine.api.state import ChatModel
from agentmem.engine.api.usage import usage
from agentmem.engine.request import Delta, Sampling

ALL = Choices()
"""Every answer that is made is given."""


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
    ids: bool = False
    """Each choice tells its tokens, streamed or not."""


def read_stream(body: Fields) -> StreamOptions:
    """`stream`, `stream_options.include_usage` and `return_token_ids`."""
    on, options = body.flag("stream"), body.table("stream_options")
    if options and not on:
        raise bad_request("stream_options needs stream to be true", "stream_options")
    ids = body.flag("return_token_ids")
    return StreamOptions(on, Fields(options or {}).flag("include_usage"), ids)


@dataclass(frozen=True, slots=True)
class Voice:
    """One choice while it is generated. `shown`: the client asked for its log-probabilities."""

    answer: Answer
    scores: ScoreLog | None = None
    shown: bool = False
    ids: list[int] = field(default_factory=list)
    """Tokens since the last chunk."""

    def take(self, delta: Delta) -> list[dict[str, Any]]:
        """Fields of the chunks for a piece of output."""
        self.ids.extend(delta.tokens)
        if self.scores:
            self.scores.take(delta)
        return self.answer.feed(delta.text)

    def told(self, whole: bool) -> dict[str, Any] | None:
        """Log-probabilities for a chunk, or for the whole choice."""
        if self.scores is None or not self.shown:
            return None
        return self.scores.whole() if whole else self.scores.chunk()

    def tokens(self, asked: bool) -> dict[str, list[int]]:
        """`token_ids` for a chunk or the whole, where they are asked for."""
        told, self.ids[:] = list(self.ids), []
        return {"token_ids": told} if asked else {}


def voices(
    answers: Sequence[Answer], model: ChatModel, sampling: Sampling, style: Style, shown: bool
) -> list[Voice]:
    """A voice for each answer, with scores where the engine is asked for them."""
    if sampling.logprobs is None:
        return [Voice(answer) for answer in answers]
    hidden = () if sampling.ignore_eos else model.tokenizer.eos_ids
    return [Voice(answer, ScoreLog(model.words, style, hidden), shown) for answer in answers]


async def reply(
    request: web.Request,
    generation: Generation,
    voices: Sequence[Voice],
    shape: Shape,
    model: str,
    stream: StreamOptions,
    choices: Choices = ALL,
) -> web.StreamResponse:
    """Wait for the engine and answer. `voices[i]` belongs to the generation's request `i`."""
    writer = _Reply(generation, voices, shape, model, stream, choices)
    return await (writer.stream(request) if stream.on else writer.whole())


def frame(request_id: str, model: str) -> dict[str, Any]:
    """What every response begins with."""
    return {"id": request_id, "created": int(time.time()), "model": model}


class _Reply:
    def __init__(
        self,
        generation: Generation,
        voices: Sequence[Voice],
        shape: Shape,
        model: str,
        stream: StreamOptions,
        choices: Choices,
    ) -> None:
        self._generation, self._voices, self._shape = generation, voices, shape
        self._options, self._choices = stream, choices
        self._head = frame(generation.id, model)

    async def whole(self) -> web.StreamResponse:
        reasons: list[str | None] = [None] * len(self._voices)
        async with within(self._generation.timeout_s):
            async for at, delta in self._generation.deltas():
                voice = self._voices[at]
                voice.take(delta)
                if delta.finish_reason:
                    voice.answer.finish()
                    reasons[at] = voice.answer.reason(delta.finish_reason)
        choices = [
            {
                "index": index,
                **self._voices[at].answer.whole(),
                "logprobs": self._voices[at].told(whole=True),
                "finish_reason": reasons[at],
                **self._voices[at].tokens(self._options.ids),
            }
            for index, at in enumerate(self._best())
        ]
        told = {"choices": choices, "usage": usage(self._generation.told)}
        body = {**self._head, "object": self._shape.whole, **told}
        return web.json_response(body, headers={"X-Request-Id": self._generation.id})

    def _best(self) -> list[int]:
        """The voices to give, prompt by prompt: all, or the likeliest by the token."""
        n, width = self._choices.n, self._choices.width
        if width == n:
            return list(range(len(self._voices)))
        kept = []
        for begin in range(0, len(self._voices), width):
            group = range(begin, begin + width)
            kept += sorted(group, key=lambda at: -_mean(self._voices[at]))[:n]
        return kept

    async def stream(self, request: web.Request) -> web.StreamResponse:
        events = EventStream(request, self._generation.id)
        await events.open()
        failure: ApiError | None = None
        try:
            async with within(self._generation.timeout_s):
                await self._chunks(events)
        except FORESEEN as err:
            # The status line is sent: what goes wrong now can only be told inside the stream.
            failure = as_api_error(err)
        return await events.close(failure)

    async def _chunks(self, events: EventStream) -> None:
        for at, voice in enumerate(self._voices):
            if opening := voice.answer.opening():
                await events.send(self._chunk(at, opening))
        async for at, delta in self._generation.deltas():
            voice = self._voices[at]
            for fields in voice.take(delta):
                await events.send(self._chunk(at, fields))
            if delta.finish_reason:
                for fields in voice.answer.finish():
                    await events.send(self._chunk(at, fields))
                reason = voice.answer.reason(delta.finish_reason)
                await events.send(self._chunk(at, voice.answer.last(), reason))
        told = self._generation.told
        if self._options.usage:
            await events.send(self._frame({"choices": [], "usage": usage(told)}))
        else:
            # Not asked for, so not in a chunk; but nothing that was computed goes unsaid.
            await events.comment(f"usage.agentmem {json.dumps(told)}")

    def _chunk(self, at: int, fields: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        scores = self._voices[at].told(whole=False)
        choice = {"index": at, **fields, "logprobs": scores, "finish_reason": reason}
        choice |= self._voices[at].tokens(self._options.ids)
        return self._frame({"choices": [choice]} | ({"usage": None} if self._options.usage else {}))

    def _frame(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {**self._head, "object": self._shape.chunk, **fields}


def _mean(voice: Voice) -> float:
    return voice.scores.mean if voice.scores else 0.0
