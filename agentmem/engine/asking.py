"""From the arguments of the Python API to engine requests."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from agentmem.engine.api.bounds import bounded
from agentmem.engine.api.chat import render
from agentmem.engine.api.errors import ApiError
from agentmem.engine.api.fields import Fields
from agentmem.engine.api.messages import read_messages
from agentmem.engine.api.prompts import Identity, Ways, expand, for_ways
from agentmem.engine.api.sampling import Choices
from agentmem.engine.api.state import ChatModel
from agentmem.engine.api.tools import ToolUse
from agentmem.engine.errors import RequestError
from agentmem.engine.request import Request, Sampling, TrafficClass
from agentmem.engine.sessions import check_session

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PromptChunk:
    """Part of a prompt that comes in pieces. The first session id of a prompt is the one."""

    content: str | Sequence[int]
    session_id: str | None = None


class Asked(TypedDict, total=False):
    """Keyword arguments of every generating method."""

    session_id: str | None
    tenant: str | None
    traffic_class: TrafficClass
    temperature: float
    top_p: float
    top_k: int
    seed: int | None
    max_tokens: int | None
    stop: str | Sequence[str]
    ignore_eos: bool
    logprobs: int | None
    """Alternatives to tell per token; 0 for the token's own log-probability alone."""
    n: int
    best_of: int
    use_beam_search: bool
    length_penalty: float
    drafts: bool
    reuse: bool
    forced: Sequence[int]
    """Tokens to produce whatever the model says."""
    schema: dict[str, Any]
    """JSON schema that the answer must hold to."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call, checked: what to submit, and how many answers to give."""

    requests: list[Request]
    choices: Choices


class Asker:
    """Makes requests for one model; ids are numbered."""

    def __init__(self, model: ChatModel) -> None:
        self.model = model
        self._numbers = itertools.count(1)

    def call(self, prompt: Sequence[int], **asked: Unpack[Asked]) -> Call:
        """The engine requests of a call. RequestError for what contradicts itself."""
        n = asked.get("n", 1)
        beams = asked.get("use_beam_search", False)
        choices = Choices(n, asked.get("best_of", n), beams, asked.get("length_penalty", 1.0))
        if not 1 <= choices.n <= choices.width:
            raise RequestError("invalid_sampling", "best_of must be n at least, and n 1", "n")
        forced, schema = asked.get("forced"), asked.get("schema")
        if forced is not None and choices != Choices():
            raise RequestError("invalid_sampling", "a forced answer is a single one", "forced")
        if schema is not None and beams:
            raise RequestError("invalid_sampling", "beams hold to no schema", "schema")
        ways = Ways(
            asked.get("drafts", True) and forced is None,
            asked.get("reuse", True),
            None if forced is None else tuple(forced),
        )
        identity = Identity(
            check_session(asked.get("session_id")),
            asked.get("tenant"),
            asked.get("traffic_class", "interactive"),
        )
        grammar = None if schema is None else self.model.grammars.json_schema(bounded(schema))
        requests = expand(
            self.next_id(),
            [prompt],
            1 if beams else choices.width,
            for_ways(self._sampling(choices, **asked), ways),
            identity,
            (lambda: None) if grammar is None else grammar.start,
            ways,
        )
        return Call(requests, choices)

    def next_id(self) -> str:
        """An id that no other request of this engine has."""
        return f"py-{next(self._numbers):08d}"

    def tokens(
        self, prompt: str | Sequence[int] | None, messages: Sequence[Message] | None
    ) -> list[int]:
        """Token ids of a text, of messages, or as given."""
        if (prompt is None) == (messages is None):
            raise RequestError("invalid_prompt", "give a prompt or messages", "prompt")
        if isinstance(prompt, str):
            return self.model.tokenizer.encode(prompt)
        if prompt is not None:
            return list(prompt)
        body = Fields({"messages": [dict(message) for message in messages or ()]})
        try:
            text = render(self.model, read_messages(body), ToolUse(), body)
        except ApiError as err:
            raise RequestError("invalid_prompt", err.message, err.param) from None
        return self.model.tokenizer.encode(text)

    def _sampling(self, choices: Choices, **asked: Unpack[Asked]) -> Sampling:
        stop = asked.get("stop", ())
        stops = (stop,) if isinstance(stop, str) else tuple(stop)
        logprobs = asked.get("logprobs")
        if logprobs is None and choices.width > choices.n:
            logprobs = 0
        return Sampling(
            temperature=asked.get("temperature", 0.0),
            top_p=asked.get("top_p", 1.0),
            top_k=asked.get("top_k", 0),
            seed=asked.get("seed"),
            max_tokens=asked.get("max_tokens"),
            stop=stops + self.model.template.stops,
            ignore_eos=asked.get("ignore_eos", False),
            logprobs=logprobs,
        )


class Chunks:
    """A prompt that comes in pieces: what is known of it so far."""

    def __init__(self, asker: Asker, asked: Asked) -> None:
        self._asker = asker
        self.asked = Asked(**asked)
        """What was asked, with the session that the prompt belongs to."""
        self._text = ""
        self._ids: list[int] = []
        self._id = asker.next_id()
        self._count = 0

    def add(self, chunk: str | Sequence[int] | PromptChunk) -> Request | None:
        """A request that computes what is there so far, or None when there is nothing yet."""
        if isinstance(chunk, PromptChunk):
            if self._count == 0 and not self.asked.get("session_id"):
                self.asked["session_id"] = check_session(chunk.session_id)
            chunk = chunk.content
        self._count += 1
        if isinstance(chunk, str):
            self._text += chunk
        else:
            self._settle()
            self._ids += chunk
        tokens = self.tokens()
        if not tokens:
            return None
        sampling = Sampling(max_tokens=1, ignore_eos=True)
        return Request(
            f"{self._id}-chunk-{self._count}",
            tuple(tokens),
            sampling,
            check_session(self.asked.get("session_id")),
            self.asked.get("tenant"),
            self.asked.get("traffic_class", "interactive"),
            reuse=self.asked.get("reuse", True),
        )

    def tokens(self) -> list[int]:
        """Token ids of all that has come."""
        if not self._text:
            return list(self._ids)
        return self._ids + self._asker.model.tokenizer.encode(self._text, not self._ids)

    def _settle(self) -> None:
        self._ids, self._text = self.tokens(), ""
