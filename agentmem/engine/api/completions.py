"""POST /v1/completions."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from agentmem.engine.api.answers import TextAnswer
from agentmem.engine.api.beaming import BeamReply, refuse_with_beams
from agentmem.engine.api.chat import for_ranking, read_constraint, unconstrained
from agentmem.engine.api.errors import bad_request
from agentmem.engine.api.fields import Fields, check_ids, is_ids, read_fields
from agentmem.engine.api.formats import read_format
from agentmem.engine.api.generation import Generation
from agentmem.engine.api.prompts import check_window, expand, for_ways, read_identity, read_ways
from agentmem.engine.api.replies import Shape, read_stream, reply, voices
from agentmem.engine.api.sampling import not_honoured, read_choices, read_sampling
from agentmem.engine.api.scores import read_text_logprobs
from agentmem.engine.api.state import SERVED, ChatModel
from agentmem.engine.api.tools import ToolUse

SHAPE = Shape("text_completion", "text_completion")
MOST_PROMPTS = 256


async def completions(request: web.Request) -> web.StreamResponse:
    """Continue one prompt or several; each is an engine request of its own."""
    body, served = await read_fields(request), request.app[SERVED]
    model = served.chat_model(body)
    for name in ("echo", "suffix"):
        if body.get(name):
            raise bad_request(f"{name} is not supported by this server", name, "unsupported")
    identity = read_identity(body, request.headers, bool(served.keys))
    choices, logprobs, stream = read_choices(body), read_text_logprobs(body), read_stream(body)
    prompts = read_prompts(body, model)
    ways = read_ways(body, model, choices, len(prompts))
    sampling = for_ways(read_sampling(body, (), for_ranking(logprobs, choices)), ways)
    check_window(prompts, sampling, model.window, "prompt")
    if choices.beams:
        refuse_with_beams(body, read_format(body) is None)
    free = ways.forced is not None
    constraint = unconstrained if free else await read_constraint(model, body, ToolUse())
    request_id, ignored = served.next_id("cmpl", request.headers), not_honoured(body)
    served.ledger.own(request_id, served.owner(request.headers))
    n = 1 if choices.beams else choices.width
    requests = expand(request_id, prompts, n, sampling, identity, constraint, ways)
    shown = logprobs is not None
    if choices.beams:
        beams = BeamReply(served, model, request_id, requests, choices, ignored)
        return await beams.whole(SHAPE, lambda at: TextAnswer(), "text", shown)
    spoken = voices([TextAnswer() for _ in requests], model, sampling, "text", shown)
    async with Generation(served, model, request_id, requests, ignored) as generation:
        return await reply(request, generation, spoken, SHAPE, model.name, stream, choices)


def read_prompts(body: Fields, model: ChatModel) -> list[list[int]]:
    """`prompt` as token ids: a string, a list of strings, token ids, or lists of token ids."""
    items = split_input(body.get("prompt"), "prompt")
    if len(items) > MOST_PROMPTS:
        raise bad_request(f"prompt takes at most {MOST_PROMPTS} items", "prompt")
    special = body.flag("add_special_tokens", True)
    tokenizer, width = model.tokenizer, model.core.vocab_size
    prompts = [
        tokenizer.encode(item, special)
        if isinstance(item, str)
        else check_ids(item, width, "prompt")
        for item in items
    ]
    if not all(prompts):
        raise bad_request("prompt must not be empty", "prompt")
    return prompts


def split_input(value: Any, param: str) -> list[str | list[int]]:
    """Items of a field that takes a string, strings, token ids or lists of token ids."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and value:
        if is_ids(value):
            return [value]
        strings = all(isinstance(v, str) for v in value)
        if strings or all(v and is_ids(v) for v in value):
            return value
    raise bad_request(
        f"{param} must be a string, a list of strings, or token ids, and not empty", param
    )
