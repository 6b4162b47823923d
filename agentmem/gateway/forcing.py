"""A recorded reply as what an engine is to produce again, token by token."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from multidict import CIMultiDict

from agentmem.gateway.asked import Asked
from agentmem.gateway.record_format import Entry
from agentmem.gateway.replies import Choice, Reply
from agentmem.gateway.streams import EventSplitter, Progress

_CUT_OFF = ("length", "incomplete")
"""Finish reasons of replies that ended without an end mark."""
_GENERATES = ("chat", "completion", "responses")


@dataclass(frozen=True, slots=True)
class Forcing:
    """How a recording is run through an engine of ours."""

    chat_model: str
    embed_model: str
    """Names under which the engine serves, whatever the systems ask for."""
    encode: Callable[[str], list[int]] | None = None
    """The engine's tokenizer on plain text; None lets the engine do it, without an end mark."""
    end: int | None = None
    """Token that ends a reply."""
    tagged: bool = False
    """The engine's template writes tool calls in `<tool_call>` tags."""
    same_tokens: bool = False
    """The recorded model has the same tokenizer: its tokens, or their number, hold here."""

    def fields(self, asked: Asked, entry: Entry) -> dict[str, Any]:
        """Body fields that make the engine do the reply's work; ValueError says why it cannot."""
        if asked.endpoint == "embedding":
            return {"model": self.embed_model, "dimensions": None}
        said = recorded(entry)
        if asked.answers != 1 or len(said.choices) != 1:
            raise ValueError("it has several answers, and an engine can be made to produce one")
        [choice] = said.choices.values()
        plain = {"model": self.chat_model, "return_token_ids": None}
        if self.same_tokens and choice.ids:
            return plain | {"forced_tokens": choice.ids}
        text = written(choice, self.tagged)
        ids = self.encode(text) if self.encode else None
        if ids is not None:
            ids = ids + self._end(choice, said.usage.output == len(ids))
        if not (ids or text):
            raise ValueError("it is empty")
        return plain | ({"forced_text": text} if ids is None else {"forced_tokens": ids})

    def _end(self, choice: Choice, whole: bool) -> list[int]:
        """The end mark, where the model wrote one. `whole`: without one the tokens are as many as
        in the recorded reply.
        """
        complete = choice.finish in _CUT_OFF or (self.same_tokens and whole)
        return [] if self.end is None or complete else [self.end]


def can_be_produced(asked: Asked, entry: Entry) -> bool:
    """Whole, successful replies of models; errors and broken replies are served as recorded."""
    known = asked.endpoint == "embedding" or asked.endpoint in _GENERATES
    return known and entry.status == 200 and entry.end == "whole"


def recorded(entry: Entry) -> Reply:
    """Content and usage of a recorded reply."""
    reply, body = Reply(), b"".join(entry.chunks)
    if entry.streamed:
        for event in EventSplitter().feed(body):
            reply.feed(event.json() or {})
        return reply
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return reply
    reply.feed(message if isinstance(message, dict) else {})
    return reply


def written(choice: Choice, tagged: bool) -> str:
    """A reply as the model would have written it, tool calls as the template spells them."""
    calls = []
    for index in sorted(choice.tools):
        name, _, arguments = "".join(choice.tools[index]).partition(" ")
        call = f'{{"name": {json.dumps(name)}, "arguments": {arguments or "{}"}}}'
        calls.append(f"<tool_call>\n{call}\n</tool_call>" if tagged else call)
    text = "".join(choice.reasoning) + "".join(choice.text)
    return "\n".join([text, *calls] if text else calls)


async def produced(reply: aiohttp.ClientResponse) -> Reply:
    """What the engine said of work that is not streamed to anybody."""
    found, body = Reply(), await reply.read()
    if reply.content_type == "text/event-stream":
        for event in EventSplitter().feed(body):
            found.feed(event.json() or {})
    else:
        message = json.loads(body)
        found.feed(message if isinstance(message, dict) else {})
    return found


def complaint(status: int, body: bytes) -> str:
    """An engine's refusal in one line."""
    try:
        error: Any = json.loads(body)["error"]
        text = str(error["message"])
    except (ValueError, KeyError, TypeError):
        text = body[:200].decode(errors="replace")
    return f"HTTP {status}: {' '.join(text.split())[:300]}"


class ForcedStream:
    """A recorded stream, given out at the pace at which the engine produces it.

    Looks like an upstream's reply to the relay. Nothing goes out before the engine's first token,
    then an event for each of its own, and the last one when the engine is done.
    """

    def __init__(
        self, entry: Entry, reply: aiohttp.ClientResponse, done: Callable[[Reply], None]
    ) -> None:
        assert entry.status is not None
        self.status: int = entry.status
        self.headers: CIMultiDict[str] = CIMultiDict(entry.headers)
        self.content_type = "text/event-stream"
        self.content_length = entry.length
        self.content = self
        self._events = deque(_events(b"".join(entry.chunks)))
        self._engine, self._done = reply, done
        self._splitter, self._progress = EventSplitter(), Progress(1)
        self._due = 0
        self._over = False

    async def readany(self) -> bytes:
        """The next recorded event once it is due; ConnectionError when the engine broke off."""
        while not self._over and not self._is_due():
            await self._listen()
        self._due -= 1
        return self._events.popleft() if self._events else b""

    def close(self) -> None:
        """Tell the engine to stop, where it has not."""
        self._engine.close()

    def _is_due(self) -> bool:
        return self._progress.began and self._due > 0 and len(self._events) > 1

    async def _listen(self) -> None:
        chunk = await self._engine.content.readany()
        events = self._splitter.feed(chunk)
        self._progress.note(events)
        self._due += len(events)
        if not chunk:
            self._over = True
            self._end()

    def _end(self) -> None:
        said = Reply()
        for event in self._progress.events:
            said.feed(event.json() or {})
        self._done(said)
        if said.error is not None or not self._progress.ended:
            raise ConnectionError(f"the engine broke off: {_told(said.error)}")


def _events(body: bytes) -> list[bytes]:
    """The events of a stream, byte for byte, with what may follow the last."""
    splitter = EventSplitter()
    raw = [event.raw for event in splitter.feed(body)]
    return [*raw, splitter.rest] if splitter.rest else raw


def _told(error: Mapping[str, Any] | None) -> str:
    return str(error.get("message")) if error else "its stream ended early"
