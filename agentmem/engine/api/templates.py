"""From chat messages to prompt text: the model's own template, or a plain one for base models."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2.ext import Extension
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agentmem.engine.api.errors import bad_request

Message = dict[str, Any]

PLAIN_STOPS = ("\nUser:", "\nSystem:", "\nTool:")
FIXED_DAY = datetime(2024, 7, 26)
"""What templates get that ask for today's date: no wall clock may enter a prompt."""


class ChatTemplate:
    """Renders messages. `stops` end an answer where the model itself knows no end of turn."""

    def __init__(self, source: str | None, bos_token: str, eos_token: str) -> None:
        self.source = source
        self.stops: tuple[str, ...] = () if source else PLAIN_STOPS
        self._specials = {"bos_token": bos_token, "eos_token": eos_token}
        self._template = _environment().from_string(source) if source else None

    @property
    def knows_tools(self) -> bool:
        """The template itself describes tools to the model."""
        return bool(self.source and re.search(r"\btools\b", self.source))

    @property
    def tags_calls(self) -> bool:
        """The model was taught to wrap calls in `<tool_call>` tags."""
        return bool(self.source and "<tool_call>" in self.source)

    def render(
        self,
        messages: list[Message],
        tools: list[dict[str, Any]] | None = None,
        *,
        prompt: bool = True,
        extra: dict[str, Any] | None = None,
    ) -> str:
        """Prompt text, with `prompt` open for an answer; 400 for what a template refuses."""
        if self._template is None:
            return plain(messages, prompt)
        given = {"messages": messages, "tools": tools, "add_generation_prompt": prompt}
        try:
            return self._template.render({**(extra or {}), **self._specials, **given})
        except (jinja2.TemplateError, TypeError, ValueError, AttributeError) as err:
            first = messages[0]
            if first["role"] != "system" or len(messages) < 2 or messages[1]["role"] != "user":
                raise bad_request(f"the chat template refuses: {err}", "messages") from None
        # Some templates take no system message: then the first user message carries it.
        joined = f"{first['content']}\n\n{messages[1]['content']}"
        merged = [{**messages[1], "content": joined}, *messages[2:]]
        return self.render(merged, tools, prompt=prompt, extra=extra)


def plain(messages: list[Message], prompt: bool) -> str:
    """The layout for models without a template: `User: ...`, blank line, `Assistant: ...`.

    The system message stands first without a label; the answer ends at the next label.
    """
    labels = {"user": "User: ", "assistant": "Assistant: ", "tool": "Tool: ", "system": "System: "}
    parts = [
        message["content"] if at == 0 and message["role"] == "system"
        else labels[message["role"]] + message["content"]
        for at, message in enumerate(messages)
    ]  # fmt: skip
    return "\n\n".join([*parts, "Assistant:"] if prompt else parts)


class _Generation(Extension):
    """`{% generation %}` marks what a model was trained on; its content is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> jinja2.Environment:
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, "jinja2.ext.loopcontrols"],
    )
    env.filters["tojson"] = _tojson
    env.globals["raise_exception"] = _refuse
    strftime: Callable[[str], str] = FIXED_DAY.strftime
    env.globals["strftime_now"] = strftime
    return env


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _tojson(value: Any, indent: int | None = None, **options: Any) -> str:
    """JSON for a prompt: unlike jinja's own filter, without HTML escapes."""
    return json.dumps(
        value, ensure_ascii=options.pop("ensure_ascii", False), indent=indent, **options
    )
