"""The output items of a `/v1/responses` answer while it grows, and the events that tell it."""

from __future__ import annotations

import hashlib
from typing import Any

from agentmem.engine.api.calls import CallParser, Event

Told = dict[str, Any]


class ResponseOutput:
    """One answer. `names` are the tools it may call; `digest` makes ids repeatable.

    Every method gives the events that it causes, without their sequence numbers.
    """

    def __init__(self, names: list[str], digest: str) -> None:
        self._parser = CallParser(names) if names else None
        self._digest = digest
        self._open: Told | None = None
        self._logprobs: list[Any] = []
        self.items: list[Told] = []

    def feed(self, text: str, logprobs: list[Any]) -> list[Told]:
        """A piece of output and the log-probabilities that came with it."""
        self._logprobs += logprobs
        events = self._parser.feed(text) if self._parser else [Event(text)] if text else []
        return self._take(events)

    def finish(self, complete: bool) -> list[Told]:
        """The end; an answer without words is an empty message."""
        told = self._take(self._parser.finish()) if self._parser else []
        if not self.items:
            told += self._open_message()
        return told + self._close("completed" if complete else "incomplete")

    def _take(self, events: list[Event]) -> list[Told]:
        return [told for event in events for told in self._one(event)]

    def _one(self, event: Event) -> list[Told]:
        if event.call is None:
            return self._text(event.text)
        if event.name is not None:
            return self._close("completed") + self._open_call(event.call, event.name)
        item = self._item()
        item["arguments"] += event.text
        return [self._event("response.function_call_arguments.delta", delta=event.text)]

    def _text(self, text: str) -> list[Told]:
        told = []
        if self._open is None or self._open["type"] != "message":
            told = self._close("completed") + self._open_message()
        part = self._item()["content"][0]
        part["text"] += text
        logprobs, self._logprobs = self._logprobs, []
        part["logprobs"] += logprobs
        delta = {"content_index": 0, "delta": text, "logprobs": logprobs}
        return [*told, self._event("response.output_text.delta", **delta)]

    def _open_message(self) -> list[Told]:
        part: Told = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        item: Told = {"type": "message", "id": self._id("msg"), "status": "in_progress"}
        item |= {"role": "assistant", "content": []}
        told = [self._added(item)]
        self._item()["content"].append(part)
        shown = {**part, "annotations": [], "logprobs": []}
        told.append(self._event("response.content_part.added", content_index=0, part=shown))
        return told

    def _open_call(self, number: int, name: str) -> list[Told]:
        item: Told = {"type": "function_call", "id": self._id("fc"), "status": "in_progress"}
        item |= {"call_id": self._id(f"call-{number}", "call"), "name": name, "arguments": ""}
        return [self._added(item)]

    def _added(self, item: Told) -> Told:
        self._open = item
        self.items.append(item)
        shown = {**item, "content": []} if "content" in item else dict(item)
        at = len(self.items) - 1
        return {"type": "response.output_item.added", "output_index": at, "item": shown}

    def _close(self, status: str) -> list[Told]:
        if self._open is None:
            return []
        item = self._open
        item["status"] = status
        if item["type"] == "function_call":
            done = {"name": item["name"], "arguments": item["arguments"]}
            told = [self._event("response.function_call_arguments.done", **done)]
        else:
            part = item["content"][0]
            part["logprobs"] += self._logprobs
            self._logprobs = []
            text = {"content_index": 0, "text": part["text"], "logprobs": part["logprobs"]}
            told = [
                self._event("response.output_text.done", **text),
                self._event("response.content_part.done", content_index=0, part=part),
            ]
        at = len(self.items) - 1
        told.append({"type": "response.output_item.done", "output_index": at, "item": item})
        self._open = None
        return told

    def _item(self) -> Told:
        assert self._open is not None, "events of an answer come in order"
        return self._open

    def _event(self, kind: str, **fields: Any) -> Told:
        at = len(self.items) - 1
        return {"type": kind, "item_id": self._item()["id"], "output_index": at, **fields}

    def _id(self, kind: str, prefix: str | None = None) -> str:
        seed = f"{self._digest}-{kind}-{len(self.items)}".encode()
        return f"{prefix or kind}_{hashlib.sha256(seed).hexdigest()[:24]}"
