"""One choice of a response while it grows: pieces to stream, and the whole at the end."""

from __future__ import annotations

import hashlib
from typing import Any, Protocol

from agentmem.engine.api.calls import CallParser, Event
from agentmem.engine.request import FinishReason


class Answer(Protocol):
    """What a response needs of a choice; chunks and the whole come from the same events."""

    def opening(self) -> dict[str, Any] | None:
        """Fields of a first chunk before any text, or None."""

    def feed(self, text: str) -> list[dict[str, Any]]:
        """Fields of the chunks for a piece of output."""

    def finish(self) -> list[dict[str, Any]]:
        """Fields of the chunks for what was held back."""

    def last(self) -> dict[str, Any]:
        """Fields of the chunk that carries the finish reason."""

    def whole(self) -> dict[str, Any]:
        """Fields of the complete choice."""

    def reason(self, engine: FinishReason) -> str:
        """The finish reason to report."""


class TextAnswer:
    """A choice of a plain completion."""

    def __init__(self) -> None:
        self._text: list[str] = []

    def opening(self) -> None:
        return None

    def feed(self, text: str) -> list[dict[str, Any]]:
        self._text.append(text)
        return [{"text": text}] if text else []

    def finish(self) -> list[dict[str, Any]]:
        return []

    def last(self) -> dict[str, Any]:
        return {"text": ""}

    def whole(self) -> dict[str, Any]:
        return {"text": "".join(self._text)}

    def reason(self, engine: FinishReason) -> str:
        return engine


class ChatAnswer:
    """A choice of a chat. `names` are the tools it may call; `digest` makes call ids repeatable.

    Call ids come from the prompt, not from chance, since they return in later prompts.
    """

    def __init__(self, names: list[str], digest: str) -> None:
        self._parser = CallParser(names) if names else None
        self._digest = digest
        self._text: list[str] = []
        self._calls: list[dict[str, Any]] = []

    def opening(self) -> dict[str, Any]:
        return {"delta": {"role": "assistant", "content": ""}}

    def feed(self, text: str) -> list[dict[str, Any]]:
        events = self._parser.feed(text) if self._parser else [Event(text)] if text else []
        return [{"delta": self._take(event)} for event in events]

    def finish(self) -> list[dict[str, Any]]:
        events = self._parser.finish() if self._parser else []
        return [{"delta": self._take(event)} for event in events]

    def last(self) -> dict[str, Any]:
        return {"delta": {}}

    def whole(self) -> dict[str, Any]:
        text = "".join(self._text)
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if self._calls:
            message["content"] = text or None
            message["tool_calls"] = [
                {k: v for k, v in c.items() if k != "index"} for c in self._calls
            ]
        return {"message": message}

    def reason(self, engine: FinishReason) -> str:
        return "tool_calls" if self._calls and engine == "stop" else engine

    def _take(self, event: Event) -> dict[str, Any]:
        if event.call is None:
            self._text.append(event.text)
            return {"content": event.text}
        if event.name is not None:
            seed = f"{self._digest}-{event.call}".encode()
            head = {"index": event.call, "id": f"call_{hashlib.sha256(seed).hexdigest()[:24]}"}
            function = {"name": event.name, "arguments": ""}
            self._calls.append({**head, "type": "function", "function": dict(function)})
            return {"tool_calls": [{**head, "type": "function", "function": function}]}
        self._calls[event.call]["function"]["arguments"] += event.text
        return {"tool_calls": [{"index": event.call, "function": {"arguments": event.text}}]}
