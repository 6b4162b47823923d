"""Beam search over HTTP: steps of the searches of all prompts, run together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web

from agentmem.engine.api.answers import Answer
from agentmem.engine.api.beams import Beam, BeamSearch
from agentmem.engine.api.errors import ApiError, bad_request
from agentmem.engine.api.fields import Fields
from agentmem.engine.api.generation import Generation
from agentmem.engine.api.limits import within
from agentmem.engine.api.replies import Shape, frame
from agentmem.engine.api.sampling import Choices
from agentmem.engine.api.scores import ScoreLog, Style
from agentmem.engine.api.state import ChatModel, Served
from agentmem.engine.api.usage import usage
from agentmem.engine.checks import DEFAULT_MAX_TOKENS
from agentmem.engine.request import Delta, Request, TokenScores


def refuse_with_beams(body: Fields, free: bool) -> None:
    """400 for what a beam search cannot hold to: grammars."""
    if not free:
        message = "use_beam_search does not go with tools or response_format"
        raise bad_request(message, "use_beam_search", "unsupported")
    if body.get("forced_tokens") is not None or body.get("forced_text") is not None:
        message = "use_beam_search does not go with a forced answer"
        raise bad_request(message, "use_beam_search", "unsupported")


class BeamReply:
    """The response to a request for beams; `parents` has one engine request for each prompt."""

    def __init__(
        self,
        served: Served,
        model: ChatModel,
        request_id: str,
        parents: Sequence[Request],
        choices: Choices,
        ignored: list[str],
    ) -> None:
        self._served, self._model, self._id = served, model, request_id
        self._choices, self._ignored, self._parents = choices, ignored, parents
        self._searches = [self._search(parent) for parent in parents]

    async def whole(
        self, shape: Shape, answer: Callable[[int], Answer], style: Style, shown: bool
    ) -> web.StreamResponse:
        """Search, and answer in one piece; `answer(i)` makes the form of choice `i`."""
        async with within(self._served.limits.timeout_s):
            while not all(search.done for search in self._searches):
                await self._step()
        beams = [b for search in self._searches for b in search.best(self._choices.n)]
        choices = [
            self._choice(at, beam, answer(at), style, shown) for at, beam in enumerate(beams)
        ]
        told = usage(self._served.ledger.account(self._id))
        body = {**frame(self._id, self._model.name), "object": shape.whole}
        return web.json_response(
            {**body, "choices": choices, "usage": told}, headers={"X-Request-Id": self._id}
        )

    def _search(self, parent: Request) -> BeamSearch:
        room = self._model.window - len(parent.prompt)
        return BeamSearch(
            parent,
            self._choices.width,
            parent.sampling.max_tokens or min(DEFAULT_MAX_TOKENS, room),
            eos=self._model.tokenizer.eos_ids,
            length_penalty=self._choices.length_penalty,
            decode=self._model.tokenizer.decode,
        )

    async def _step(self) -> None:
        batches = [[] if search.done else search.requests() for search in self._searches]
        requests = [request for batch in batches for request in batch]
        async with Generation(
            self._served, self._model, self._id, requests, self._ignored
        ) as generation:
            scores: list[TokenScores | None] = [None] * len(requests)
            async for at, delta in generation.deltas():
                scores[at] = first_score(delta) or scores[at]
        found = iter(scores)
        for search, batch in zip(self._searches, batches, strict=True):
            if batch:
                search.take([_known(next(found)) for _ in batch])

    def _choice(
        self, at: int, beam: Beam, answer: Answer, style: Style, shown: bool
    ) -> dict[str, Any]:
        # The sub-requests hide nothing: end markers are taken off here.
        ignore = self._parents[0].sampling.ignore_eos
        eos = frozenset() if ignore else frozenset(self._model.tokenizer.eos_ids)
        text = self._model.tokenizer.decode([t for t in beam.tokens if t not in eos])
        answer.feed(text if beam.cut is None else text[: beam.cut])
        answer.finish()
        log = ScoreLog(self._model.words, style, eos)
        log.take(Delta("", beam.tokens, None, beam.scores))
        return {
            "index": at,
            **answer.whole(),
            "logprobs": log.whole() if shown else None,
            "finish_reason": answer.reason(beam.reason or "length"),
            "cumulative_logprob": beam.logprob,
        }


def first_score(delta: Delta) -> TokenScores | None:
    """The scores that came with a piece of a single-token answer."""
    return delta.scores[0] if delta.scores else None


def _known(score: TokenScores | None) -> TokenScores:
    if score is None or not score.top:
        message = "the engine gave no log-probabilities, without which there are no beams"
        raise ApiError(500, message, code="no_logprobs")
    return score
