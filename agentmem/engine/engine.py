"""The engine as a Python object: `Engine.load(...)`, then generate, stream, embed.

Everything the server offers without HTTP; see docs/engine.md for an example that runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

import numpy as np
from numpy.typing import NDArray

from agentmem.engine.api.beams import BeamSearch
from agentmem.engine.api.sampling import Choices
from agentmem.engine.api.state import ChatModel
from agentmem.engine.asking import Asked, Asker, Call, Chunks, Message, PromptChunk
from agentmem.engine.checks import DEFAULT_MAX_TOKENS
from agentmem.engine.core import EngineCore
from agentmem.engine.embed import Embedder
from agentmem.engine.generated import Answer, Generated, Piece, joined
from agentmem.engine.kv.registry import SessionStats
from agentmem.engine.options import EngineOptions
from agentmem.engine.request import RequestRecord, TokenScores, TrafficClass
from agentmem.engine.running import Running
from agentmem.errors import EngineError, UsageError
from agentmem.modelfiles.fetch import resolve

Chunk = str | Sequence[int] | PromptChunk
Prompt = str | Sequence[int] | Iterator[Chunk]

__all__ = ["Answer", "Engine", "Generated", "Piece", "PromptChunk"]


class Engine:
    """A loaded model, and an embedder where one was given. Thread-safe; close it when done."""

    def __init__(self, core: EngineCore, embedder: Embedder | None = None) -> None:
        self.core, self.embedder = core, embedder
        self._asker = Asker(ChatModel(core))

    @classmethod
    def load(
        cls,
        model: str | Path,
        *,
        embedder: str | Path | None = None,
        **options: Unpack[EngineOptions],
    ) -> Engine:
        """Load a fetched model by name, a GGUF file or a safetensors folder.

        The options are those of EngineCore.load; embeddings and steps take turns. UsageError for
        options that cannot be, DataError for files that cannot be read.
        """
        core = EngineCore.load(resolve(model), **options)
        found: Embedder | None = None
        try:
            if embedder is not None:
                found = Embedder.load(resolve(embedder), options.get("threads"))
                found.share(core)
        except BaseException:
            core.close()
            raise
        return cls(core, found)

    def generate(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Sequence[Message] | None = None,
        **asked: Unpack[Asked],
    ) -> Generated:
        """Answer a text, token ids, messages, or a prompt whose chunks an iterator gives.

        Chunks are computed as they come, so that little is left to do after the last. Greedy unless
        `temperature` says otherwise. RequestError for what cannot be run, EngineError when the
        engine gives up.
        """
        ids, asked, early = self._open(prompt, messages, asked)
        call = self._asker.call(ids, **asked)
        if call.choices.beams:
            return _with(self._beams(call), early)
        running = Running(self.core, call.requests)
        return _with(_collected(call.choices, running, list(running.pieces())), early)

    def stream(
        self,
        prompt: str | Sequence[int] | None = None,
        *,
        messages: Sequence[Message] | None = None,
        **asked: Unpack[Asked],
    ) -> Stream:
        """The same as pieces while they come; `.generated` is the whole once they have ended."""
        call = self._asker.call(self._asker.tokens(prompt, messages), **asked)
        return Stream(Running(self.core, call.requests), _streamable(call))

    async def agenerate(
        self,
        prompt: Prompt | AsyncIterator[Chunk] | None = None,
        *,
        messages: Sequence[Message] | None = None,
        **asked: Unpack[Asked],
    ) -> Generated:
        """`generate` for an event loop; cancelling the task stops the engine."""
        if isinstance(prompt, AsyncIterator):
            ids, asked, early = await self._aread(prompt, asked)
        elif isinstance(prompt, Iterator):
            ids, asked, early = await asyncio.to_thread(self._open, prompt, messages, asked)
        else:
            ids, asked, early = self._open(prompt, messages, asked)
        call = self._asker.call(ids, **asked)
        if call.choices.beams:
            return _with(await self._abeams(call), early)
        running = Running(self.core, call.requests)
        pieces = [piece async for piece in running.apieces()]
        return _with(_collected(call.choices, running, pieces), early)

    def astream(
        self,
        prompt: str | Sequence[int] | None = None,
        *,
        messages: Sequence[Message] | None = None,
        **asked: Unpack[Asked],
    ) -> Stream:
        """`stream` for `async for`."""
        return self.stream(prompt, messages=messages, **asked)

    def embed(
        self, texts: Iterable[str], *, traffic_class: TrafficClass = "interactive"
    ) -> NDArray[np.float32]:
        """Unit vectors float32 [texts, dims], in the order of the texts."""
        if self.embedder is None:
            raise UsageError("no embedder: give one to Engine.load(..., embedder=...)")
        return self.embedder.embed(list(texts), traffic_class=traffic_class)

    def sessions(self, tenant: str | None = None) -> list[SessionStats]:
        """What is known of a tenant's sessions."""
        return self.core.sessions(tenant)

    def session(self, session_id: str, tenant: str | None = None) -> SessionStats | None:
        """One session; None where the tenant has none of that id."""
        return self.core.session(session_id, tenant)

    def drop_session(self, session_id: str, tenant: str | None = None) -> int:
        """Forget a session; gives the bytes freed, those that no other session shares."""
        return self.core.drop_session(session_id, tenant)

    def close(self) -> None:
        """End what runs, and the engine's thread."""
        self.core.close()
        if self.embedder is not None:
            self.embedder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, err: BaseException | None, at: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def _open(
        self, prompt: Prompt | None, messages: Sequence[Message] | None, asked: Asked
    ) -> tuple[list[int], Asked, list[RequestRecord]]:
        """Token ids of the prompt; of one in chunks, once each has been computed."""
        if not isinstance(prompt, Iterator):
            return self._asker.tokens(prompt, messages), asked, []
        known = Chunks(self._asker, asked)
        records: list[RequestRecord] = []
        for chunk in prompt:
            if (request := known.add(chunk)) is not None:
                running = Running(self.core, [request])
                for _ in running.pieces():
                    pass
                records += running.records
        return known.tokens(), known.asked, records

    async def _aread(
        self, chunks: AsyncIterator[Chunk], asked: Asked
    ) -> tuple[list[int], Asked, list[RequestRecord]]:
        known = Chunks(self._asker, asked)
        records: list[RequestRecord] = []
        async for chunk in chunks:
            if (request := known.add(chunk)) is not None:
                running = Running(self.core, [request])
                async for _ in running.apieces():
                    pass
                records += running.records
        return known.tokens(), known.asked, records

    def _beams(self, call: Call) -> Generated:
        search = self._search(call)
        records: list[RequestRecord] = []
        while not search.done:
            running = Running(self.core, search.requests())
            search.take(_scores(list(running.pieces())))
            records += running.records
        return self._found(search, call.choices, records)

    async def _abeams(self, call: Call) -> Generated:
        search = self._search(call)
        records: list[RequestRecord] = []
        while not search.done:
            running = Running(self.core, search.requests())
            search.take(_scores([piece async for piece in running.apieces()]))
            records += running.records
        return self._found(search, call.choices, records)

    def _search(self, call: Call) -> BeamSearch:
        (like,) = call.requests
        room = self.core.window - len(like.prompt)
        return BeamSearch(
            like,
            call.choices.width,
            like.sampling.max_tokens or min(DEFAULT_MAX_TOKENS, room),
            eos=self.core.tokenizer.eos_ids,
            length_penalty=call.choices.length_penalty,
            decode=self.core.tokenizer.decode,
        )

    def _found(
        self, search: BeamSearch, choices: Choices, records: list[RequestRecord]
    ) -> Generated:
        decode, answers = self.core.tokenizer.decode, []
        for beam in search.best(choices.n):
            text = decode(beam.tokens)
            text = text if beam.cut is None else text[: beam.cut]
            answers.append(Answer(text, beam.tokens, beam.reason or "length", beam.scores))
        return Generated(tuple(answers), tuple(records))


class Stream:
    """Pieces of the answers to one call; iterate it once, by `for` or by `async for`."""

    def __init__(self, running: Running, choices: Choices) -> None:
        self._running, self._choices = running, choices
        self._pieces: list[Piece] = []

    def __iter__(self) -> Iterator[Piece]:
        for piece in self._running.pieces():
            self._pieces.append(piece)
            yield piece

    async def __aiter__(self) -> AsyncIterator[Piece]:
        async for piece in self._running.apieces():
            self._pieces.append(piece)
            yield piece

    @property
    def generated(self) -> Generated:
        """The whole; EngineError before the last piece has come."""
        if len(self._running.records) < self._choices.n:
            raise EngineError("the stream has not been read to its end")
        return _collected(self._choices, self._running, self._pieces)


def _collected(choices: Choices, running: Running, pieces: list[Piece]) -> Generated:
    """The answers in order, or the likeliest `n` of them by the token."""
    answers = [
        joined(piece for piece in pieces if piece.index == at) for at in range(choices.width)
    ]
    if choices.width > choices.n:
        answers.sort(key=lambda one: -(one.logprob or 0.0) / max(1, len(one.tokens)))
        answers = answers[: choices.n]
    return Generated(tuple(answers), running.records)


def _streamable(call: Call) -> Choices:
    if call.choices.ranked:
        raise UsageError("best_of above n and use_beam_search cannot be streamed; use generate()")
    return call.choices


def _scores(pieces: list[Piece]) -> list[TokenScores]:
    """The scores of single-token answers, in the order of their requests."""
    found = {piece.index: piece.scores[0] for piece in pieces if piece.scores}
    if len(found) != len({piece.index for piece in pieces}):
        raise EngineError("the engine gave no log-probabilities, without which there are no beams")
    return [found[at] for at in sorted(found)]


def _with(generated: Generated, early: list[RequestRecord]) -> Generated:
    return replace(generated, records=(*early, *generated.records))
