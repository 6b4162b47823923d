"""POST /v1/chat/completions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from aiohttp import web

from agentmem.engine.api.answers import ChatAnswer
from agentmem.engine.api.beaming import BeamReply, refuse_with_beams
from agentmem.engine.api.calls import FreeOrCall, call_grammar
from agentmem.engine.api.errors import bad_request
from agentmem.engine.api.fields import Fields, read_fields
from agentmem.engine.api.formats import read_format
from agentmem.engine.api.generation import Generation
from agentmem.engine.api.messages import Message, read_messages, without_tools
from agentmem.engine.api.prompts import (
    NewConstraint,
    check_window,
    expand,
    for_ways,
    read_identity,
    read_ways,
)
from agentmem.engine.api.replies import Shape, read_stream, reply, voices
from agentmem.engine.api.sampling import Choices, not_honoured, read_choices, read_sampling
from agentmem.engine.api.scores import read_chat_logprobs
from agentmem.engine.api.state import SERVED, ChatModel, Served
from agentmem.engine.api.tools import ToolUse, read_tools, with_description
from agentmem.engine.api.usage import prompt_hash
from agentmem.engine.constraints import Grammar, GrammarError
from agentmem.engine.request import Request, Sampling

SHAPE = Shape("chat.completion", "chat.completion.chunk")


def unconstrained() -> None:
    """The constraint of an answer that is given: none."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A chat request that has been read and checked, and the engine requests that answer it."""

    model: ChatModel
    request_id: str
    requests: list[Request]
    sampling: Sampling
    choices: Choices
    use: ToolUse
    ignored: list[str]
    shown: bool
    """The client asked for log-probabilities."""

    def answer(self, at: int) -> ChatAnswer:
        """The form of choice `at`."""
        return ChatAnswer(self.names, f"{self.digest}-{at}")

    @property
    def names(self) -> list[str]:
        """Tools that an answer may call."""
        return [tool.name for tool in self.use.callable]

    @property
    def digest(self) -> str:
        """What makes the ids of calls repeatable."""
        return prompt_hash(self.requests[0].prompt)


async def chat(request: web.Request) -> web.StreamResponse:
    """Answer a conversation, streamed or not."""
    body, served = await read_fields(request), request.app[SERVED]
    stream = read_stream(body)
    asked = await read_conversation(request, body, served, "chatcmpl")
    model = asked.model
    if asked.choices.beams:
        beams = BeamReply(
            served, model, asked.request_id, asked.requests, asked.choices, asked.ignored
        )
        return await beams.whole(SHAPE, asked.answer, "chat", asked.shown)
    answers = [asked.answer(at) for at in range(len(asked.requests))]
    spoken = voices(answers, model, asked.sampling, "chat", asked.shown)
    async with Generation(
        served, model, asked.request_id, asked.requests, asked.ignored
    ) as generation:
        return await reply(request, generation, spoken, SHAPE, model.name, stream, asked.choices)


async def read_conversation(
    request: web.Request, body: Fields, served: Served, prefix: str
) -> Conversation:
    """Everything of a chat-like body; 400 names the field at fault."""
    model = served.chat_model(body)
    identity = read_identity(body, request.headers, bool(served.keys))
    choices, use, logprobs = read_choices(body), read_tools(body), read_chat_logprobs(body)
    sampling = read_sampling(body, model.template.stops, for_ranking(logprobs, choices))
    ways = read_ways(body, model, choices)
    sampling = for_ways(sampling, ways)
    prompt = model.tokenizer.encode(render(model, read_messages(body), use, body))
    check_window([prompt], sampling, model.window, "messages")
    if choices.beams:
        refuse_with_beams(body, use.choice == "none" and read_format(body) is None)
    constraint = await read_constraint(model, body, use) if ways.forced is None else unconstrained
    request_id = served.next_id(prefix, request.headers)
    served.ledger.own(request_id, served.owner(request.headers))
    n = 1 if choices.beams else choices.width
    requests = expand(request_id, [prompt], n, sampling, identity, constraint, ways)
    if ways.forced:
        use = replace(use, callable=())
    return Conversation(
        model, request_id, requests, sampling, choices, use, not_honoured(body),
        logprobs is not None,
    )  # fmt: skip


def for_ranking(logprobs: int | None, choices: Choices) -> int | None:
    """Log-probabilities to ask the engine for: those wanted, or a token's own to rank by."""
    return 0 if logprobs is None and choices.width > choices.n else logprobs


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
