"""Runs requests on an engine and waits for their ends."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field
from typing import Any

from agentmem.engine.core import EngineCore
from agentmem.engine.request import Delta, Request, RequestRecord, Sampling

_NUMBERS = itertools.count()


@dataclass
class Answer:
    """What came back for one request."""

    request_id: str
    deltas: list[Delta] = field(default_factory=list)
    records: list[RequestRecord] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> Answer:
        assert self.done.wait(60), "the request never ended"
        return self

    @property
    def tokens(self) -> list[int]:
        return [token for delta in self.deltas for token in delta.tokens]

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)

    @property
    def record(self) -> RequestRecord:
        (record,) = self.records
        return record


def start(engine: EngineCore, prompt: list[int], on_delta: Any = None, **fields: Any) -> Answer:
    """Submit; keywords that Sampling knows go there, the others to Request."""
    answer = Answer(fields.pop("request_id", f"r{next(_NUMBERS)}"))
    sampling = {k: fields.pop(k) for k in list(fields) if k in Sampling.__dataclass_fields__}

    def take(delta: Delta) -> None:
        answer.deltas.append(delta)
        if on_delta is not None:
            on_delta(delta)

    def end(record: RequestRecord) -> None:
        answer.records.append(record)
        answer.done.set()

    sampling = {"max_tokens": 16, "ignore_eos": True} | sampling
    request = Request(answer.request_id, tuple(prompt), Sampling(**sampling), **fields)
    engine.submit(request, take, end)
    return answer


def run(engine: EngineCore, prompt: list[int], **fields: Any) -> Answer:
    """Submit and wait."""
    return start(engine, prompt, **fields).wait()
