"""POST /v1/completions."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from agentmem.engine.api.answers import TextAnswer
from agentmem.engine.api.chat import read_constraint
from agentmem.engine.api.errors import bad_request
from agentmem.engine.api.fields import Fields, read_fields
from agentmem.engine.api.generation import Generation
from agentmem.engine.api.prompts import check_window, expand, read_identity
from agentmem.engine.api.replies import Shape, read_stream, reply
from agentmem.engine.api.sampling import not_honoured, read_choices, read_sampling, refuse_logprobs
from agentmem.engine.api.state import SERVED, ChatModel
from agentmem.engine.api.tools import ToolUse

SHAPE = Shape("text_completion", "text_completion")
MOST_PROMPTS = 256


async def completions(request: web.Request) -> web.StreamResponse:
    """Continue one prompt or several; each is an engine request of its own."""
    body, served = await read_fields(request), request.app[SERVED]
    model = served.chat_model(body)
    refuse_logprobs(body)
    for name in ("echo", "suffix"):
        if body.get(name):
            raise bad_request(f"{name} is not supported by this server", name, "unsupported")
    identity, n = read_identity(body, request.headers), read_choices(body)
    sampling, stream = read_sampling(body), read_stream(body)
    prompts = read_prompts(body, model)
    check_window(prompts, sampling, model.window, "prompt")
    constraint = await read_constraint(model, body, ToolUse())
    request_id = served.next_id("cmpl", request.headers)
    requests = expand(request_id, prompts, n, sampling, identity, constraint)
    facts = {**model.facts(), "ignored": not_honoured(body)}
    answers = [TextAnswer() for _ in requests]
    async with Generation(model.core, request_id, requests, served.ledger, facts) as generation:
        return await reply(request, generation, answers, SHAPE, model.name, stream)


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
        if all(_is_id(v) for v in value):
            return [value]
        strings = all(isinstance(v, str) for v in value)
        if strings or all(isinstance(v, list) and v and all(map(_is_id, v)) for v in value):
            return value
    raise bad_request(
        f"{param} must be a string, a list of strings, or token ids, and not empty", param
    )


def check_ids(ids: list[int], width: int, param: str) -> list[int]:
    """The ids, all inside the vocabulary; 400 otherwise."""
    if not all(0 <= token < width for token in ids):
        raise bad_request(f"{param} has token ids outside the vocabulary of {width}", param)
    return ids


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
