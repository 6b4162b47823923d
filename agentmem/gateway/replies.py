"""What came back: text, tool calls, finish reason and usage, streamed or not, one shape."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentmem.gateway.usage import Usage, read_usage


@dataclass(slots=True)
class Choice:
    """One of the `n` answers."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    tools: dict[int, list[str]] = field(default_factory=dict)
    """Pieces of "name arguments" by the tool call's index."""
    finish: str | None = None
    ids: list[int] = field(default_factory=list)
    """The tokens themselves, where the server was asked for them."""


@dataclass(slots=True)
class Reply:
    """Gathers a reply from whole bodies or stream events; ids and times are left out."""

    choices: dict[int, Choice] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    embedding_digest: str | None = None
    error: Mapping[str, Any] | None = None
    seen: bool = False
    """Something of the model's output has arrived."""

    @property
    def finish_reason(self) -> str | None:
        return next((c.finish for c in self.choices.values() if c.finish), None)

    def texts(self) -> list[str]:
        """All that the model wrote, per answer and tool call."""
        return [text for c in self._ordered() for text in _pieces(c) if text]

    def digest(self) -> str | None:
        """sha256 of texts and tool calls, the same for a stream and a whole body."""
        if not self.choices:
            return self.embedding_digest
        content = [_pieces(choice) for choice in self._ordered()]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def feed(self, message: Mapping[str, Any]) -> None:
        """Take in a whole reply body or one stream event of any endpoint."""
        if message.get("usage") is not None:
            self.usage = read_usage(message["usage"])
        if isinstance(message.get("error"), Mapping):
            self.error = message["error"]
        for choice in message.get("choices") or ():
            if isinstance(choice, Mapping):
                self._feed_choice(choice)
        if isinstance(message.get("data"), list):
            self.embedding_digest = _vectors_digest(message["data"])
        self._feed_responses(message)

    def _feed_choice(self, raw: Mapping[str, Any]) -> None:
        choice = self.choices.setdefault(raw.get("index") or 0, Choice())
        if isinstance(raw.get("finish_reason"), str):
            choice.finish = raw["finish_reason"]
        choice.ids += raw.get("token_ids") or ()
        self._add(choice.text, raw.get("text"))
        said = raw.get("message") or raw.get("delta")
        if isinstance(said, Mapping):
            self._add(choice.text, said.get("content"))
            self._add(choice.reasoning, said.get("reasoning_content") or said.get("reasoning"))
            for place, call in enumerate(said.get("tool_calls") or ()):
                self._feed_tool(choice, call.get("index", place), call.get("function") or {})

    def _feed_tool(self, choice: Choice, index: int, function: Mapping[str, Any]) -> None:
        pieces = choice.tools.setdefault(index, [])
        if name := function.get("name"):
            self._add(pieces, f"{name} ")
        self._add(pieces, function.get("arguments"))

    def _feed_responses(self, message: Mapping[str, Any]) -> None:
        """The responses API: a body with `output`, or `response.*` events."""
        kind = message.get("type")
        if kind == "response.output_text.delta":
            self._add(self.choices.setdefault(0, Choice()).text, message.get("delta"))
        inner = message.get("response") if isinstance(kind, str) else message
        if not isinstance(inner, Mapping) or not isinstance(inner.get("output"), list):
            return
        if inner.get("usage") is not None:
            self.usage = read_usage(inner["usage"])
        if inner.get("status") in (None, "in_progress", "queued"):
            return
        choice = self.choices[0] = Choice(finish=str(inner["status"]))
        for place, item in enumerate(inner["output"]):
            for part in item.get("content") or ():
                self._add(choice.text, part.get("text"))
            if item.get("type") == "function_call":
                self._feed_tool(choice, place, item)

    def _add(self, pieces: list[str], text: object) -> None:
        if isinstance(text, str) and text:
            self.seen = True
            pieces.append(text)

    def _ordered(self) -> list[Choice]:
        return [self.choices[index] for index in sorted(self.choices)]


def _pieces(choice: Choice) -> list[str]:
    tools = ("".join(choice.tools[index]) for index in sorted(choice.tools))
    return ["".join(choice.text), "".join(choice.reasoning), *tools]


def _vectors_digest(data: list[Any]) -> str:
    """sha256 of embedding vectors: of 64-bit floats, or of the base64 text as it came."""
    digest = hashlib.sha256()
    for item in data:
        vector = item.get("embedding") if isinstance(item, Mapping) else None
        if isinstance(vector, str):
            digest.update(vector.encode())
        elif isinstance(vector, list) and all(isinstance(v, int | float) for v in vector):
            digest.update(array("d", vector).tobytes())
    return digest.hexdigest()
