"""POST /v1/chat/completions."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from agentmem.engine.api.answers import ChatAnswer
from agentmem.engine.api.calls import FreeOrCall, call_grammar
from agentmem.engine.api.errors import bad_request
from agentmem.engine.api.fields import Fields, read_fields
from agentmem.engine.api.formats import read_format
from agentmem.engine.api.generation import Generation
from agentmem.engine.api.messages import Message, read_messages, without_tools
from agentmem.engine.api.prompts import NewConstraint, check_window, expand, read_identity
from agentmem.engine.api.replies import Shape, read_stream, reply
from agentmem.engine.api.sampling import not_honoured, read_choices, read_sampling, refuse_logprobs
from agentmem.engine.api.state import SERVED, ChatModel
from agentmem.engine.api.tools import ToolUse, read_tools, with_description
from agentmem.engine.api.usage import prompt_hash
from agentmem.engine.constraints import Grammar, GrammarError

SHAPE = Shape("chat.completion", "chat.completion.chunk")


async def chat(request: web.Request) -> web.StreamResponse:
    """Answer a conversation, streamed or not."""
    body, served = await read_fields(request), request.app[SERVED]
    model = served.chat_model(body)
    refuse_logprobs(body)
    identity, n, use = read_identity(body, request.headers), read_choices(body), read_tools(body)
    sampling, stream = read_sampling(body, model.template.stops), read_stream(body)
    prompt = model.tokenizer.encode(render(model, read_messages(body), use, body))
    check_window([prompt], sampling, model.window, "messages")
    constraint = await read_constraint(model, body, use)
    request_id = served.next_id("chatcmpl", request.headers)
    requests = expand(request_id, [prompt], n, sampling, identity, constraint)
    facts = {**model.facts(), "ignored": not_honoured(body)}
    names, digest = [tool.name for tool in use.callable], prompt_hash(prompt)
    answers = [ChatAnswer(names, f"{digest}-{i}") for i in range(n)]
    async with Generation(model.core, request_id, requests, served.ledger, facts) as generation:
        return await reply(request, generation, answers, SHAPE, model.name, stream)


def render(model: ChatModel, messages: list[Message], use: ToolUse, body: Fields) -> str:
    """Prompt text of the conversation, tools included."""
    template, extra = model.template, body.table("chat_template_kwargs")
    prompt = body.flag("add_generation_prompt", True)
    if template.knows_tools:
        tools = [tool.as_dict() for tool in use.told] or None
        return template.render(messages, tools, prompt=prompt, extra=extra)
    messages = without_tools(messages)
    if use.callable:
        messages = with_description(messages, use.callable)
    return template.render(messages, prompt=prompt, extra=extra)


async def read_constraint(model: ChatModel, body: Fields, use: ToolUse) -> NewConstraint:
    """What the answer must look like: required tools, else `response_format`, else free or call.

    Grammars are compiled once for all choices, off the event loop.
    """
    param = "response_format"
    try:
        schema = read_format(body)
        if schema is None and use.choice == "none":
            return lambda: None
        if schema is None or use.choice == "required":
            param = "tools"
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, compile_, model, schema, use)
    except GrammarError as err:
        raise bad_request(f"{param}: {err}", param, "unsupported_schema") from None


def compile_(model: ChatModel, schema: dict[str, Any] | None, use: ToolUse) -> NewConstraint:
    """The maker of each choice's constraint; GrammarError for what cannot be carried out."""

    def grammar(tagged: bool, opened: bool) -> Grammar:
        return call_grammar(model.grammars, use, tagged=tagged, opened=opened)

    if use.choice == "required":
        return grammar(model.template.tags_calls, opened=False).start
    if schema is not None:
        return model.grammars.json_schema(schema).start
    bare, tagged = grammar(False, opened=True), grammar(True, opened=True)
    names = [tool.name for tool in use.callable]
    return lambda: FreeOrCall(model.tokenizer, names, bare, tagged)
