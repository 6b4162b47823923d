"""POST /v1/generate: token ids in, token ids out."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from agentmem.engine.api.errors import FORESEEN, ApiError, as_api_error, bad_request
from agentmem.engine.api.fields import Fields, check_ids, is_ids, read_fields
from agentmem.engine.api.generation import Generation
from agentmem.engine.api.limits import within
from agentmem.engine.api.prompts import check_window, expand, for_ways, read_identity, read_ways
from agentmem.engine.api.sampling import read_choices, read_sampling
from agentmem.engine.api.scores import read_text_logprobs
from agentmem.engine.api.sse import EventStream
from agentmem.engine.api.state import SERVED, ChatModel
from agentmem.engine.api.usage import usage
from agentmem.engine.request import Delta


async def generate(request: web.Request) -> web.StreamResponse:
    """Continue `token_ids`; how to sample stands in `sampling_params`.

    The session is named by the header alone.
    """
    body, served = await read_fields(request), request.app[SERVED]
    model = served.chat_model(body)
    params = Fields(body.table("sampling_params") or {})
    identity = read_identity(body, request.headers, bool(served.keys), header_only=True)
    choices, logprobs = read_choices(params), read_text_logprobs(params)
    if choices.ranked:
        message = "/v1/generate gives what was sampled: no best_of above n, no use_beam_search"
        raise bad_request(message, "sampling_params", "unsupported")
    prompt = read_prompt(body, model)
    ways = read_ways(body, model, choices)
    sampling = for_ways(read_sampling(params, (), logprobs), ways)
    check_window([prompt], sampling, model.window, "token_ids")
    request_id = served.next_id("gen", request.headers)
    served.ledger.own(request_id, served.owner(request.headers))
    requests = expand(request_id, [prompt], choices.n, sampling, identity, ways=ways)
    async with Generation(served, model, request_id, requests) as generation:
        writer = _Writer(generation, len(requests), logprobs is not None)
        if body.flag("stream"):
            return await writer.stream(request)
        return await writer.whole()


def read_prompt(body: Fields, model: ChatModel) -> list[int]:
    """`token_ids`, not empty and inside the vocabulary."""
    ids = body.get("token_ids")
    if not is_ids(ids) or not ids:
        raise bad_request("token_ids must be a list of token ids, and not empty", "token_ids")
    return check_ids(ids, model.core.vocab_size, "token_ids")


class _Writer:
    def __init__(self, generation: Generation, n: int, scored: bool) -> None:
        self._generation, self._scored = generation, scored
        self._choices = [_choice(at, scored) for at in range(n)]

    async def whole(self) -> web.Response:
        async with within(self._generation.timeout_s):
            async for at, delta in self._generation.deltas():
                choice, piece = self._choices[at], self._piece(at, delta)
                choice["token_ids"] += piece["token_ids"]
                choice["finish_reason"] = piece["finish_reason"]
                if self._scored:
                    choice["logprobs"] += piece["logprobs"]
        told = usage(self._generation.told)
        body = {"request_id": self._generation.id, "choices": self._choices, "usage": told}
        return web.json_response(body, headers={"X-Request-Id": self._generation.id})

    async def stream(self, request: web.Request) -> web.StreamResponse:
        events = EventStream(request, self._generation.id)
        await events.open()
        failure: ApiError | None = None
        head = {"request_id": self._generation.id}
        try:
            async with within(self._generation.timeout_s):
                async for at, delta in self._generation.deltas():
                    await events.send({**head, "choices": [self._piece(at, delta)]})
                await events.send({**head, "choices": [], "usage": usage(self._generation.told)})
        except FORESEEN as err:
            failure = as_api_error(err)
        return await events.close(failure)

    def _piece(self, at: int, delta: Delta) -> dict[str, Any]:
        piece = {**_choice(at, self._scored), "token_ids": list(delta.tokens)}
        piece["finish_reason"] = delta.finish_reason
        if self._scored:
            if len(delta.scores) != len(delta.tokens):
                message = "the engine gave no log-probabilities for its tokens"
                raise ApiError(500, message, code="no_logprobs")
            piece["logprobs"] = [
                {"logprob": s.logprob, "top": [list(pair) for pair in s.top]} for s in delta.scores
            ]
        return piece


def _choice(at: int, scored: bool) -> dict[str, Any]:
    logprobs: list[Any] | None = [] if scored else None
    return {"index": at, "token_ids": [], "finish_reason": None, "logprobs": logprobs}
