"""Tools of a chat request: which there are, how they are told to the model, what is wanted."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from agentmem.engine.api.errors import bad_request
from agentmem.engine.api.fields import Fields
from agentmem.engine.api.messages import Message

Choice = Literal["none", "auto", "required"]
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the model may call. `parameters` is a JSON schema of an object."""

    name: str
    description: str
    parameters: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """The form that chat templates read."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolUse:
    """`required` with a single tool is a named choice. `several` allows more than one call."""

    choice: Choice = "none"
    told: tuple[Tool, ...] = ()
    """Tools the model is told about."""
    callable: tuple[Tool, ...] = ()
    """Tools that an answer may call."""
    several: bool = True


def read_tools(body: Fields) -> ToolUse:
    """`tools` and `tool_choice`; 400 for a choice that names no tool."""
    tools = _tools(body)
    several = body.flag("parallel_tool_calls", True)
    choice = body.get("tool_choice")
    if choice is None:
        choice = "auto" if tools else "none"
    if isinstance(choice, dict):
        wanted = _named(choice)
        chosen = tuple(tool for tool in tools if tool.name == wanted)
        if not chosen:
            raise bad_request(f"tool_choice names {wanted!r}, which is not in tools", "tool_choice")
        return ToolUse("required", tools, chosen, several=False)
    if choice not in ("none", "auto", "required"):
        raise bad_request("tool_choice must be none, auto, required or a function", "tool_choice")
    if not tools:
        if choice == "required":
            raise bad_request("tool_choice is required but there are no tools", "tool_choice")
        return ToolUse()
    return ToolUse(choice, tools, () if choice == "none" else tools, several)


def describe(tools: tuple[Tool, ...]) -> str:
    """Text about the tools for models whose template says nothing of them."""
    lines = [json.dumps(tool.as_dict()["function"], ensure_ascii=False) for tool in tools]
    return "\n".join(
        [
            "You can call these functions:",
            *lines,
            "To call one, answer with nothing but this JSON object:",
            '{"name": "<function name>", "arguments": {<its arguments>}}',
        ]
    )


def with_description(messages: list[Message], tools: tuple[Tool, ...]) -> list[Message]:
    """Messages whose system message describes the tools."""
    text = describe(tools)
    if messages[0]["role"] == "system":
        first = {**messages[0], "content": f"{messages[0]['content']}\n\n{text}"}
        return [first, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def _tools(body: Fields) -> tuple[Tool, ...]:
    raw = body.get("tools")
    if raw is None:
        return ()
    if not isinstance(raw, list):
        raise bad_request("tools must be a list", "tools")
    tools = tuple(_tool(item, f"tools[{at}]") for at, item in enumerate(raw))
    names = [tool.name for tool in tools]
    if len(set(names)) < len(names):
        raise bad_request("tools has two functions of one name", "tools")
    return tools


def _tool(raw: Any, where: str) -> Tool:
    function = raw.get("function") if isinstance(raw, dict) else None
    if not isinstance(function, dict) or raw.get("type", "function") != "function":
        raise bad_request(f"{where} must be an object of type function", where)
    name, text = function.get("name"), function.get("description")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise bad_request(f"{where}: name must be 1 to 64 of A-Z a-z 0-9 _ . -", where)
    parameters = function.get("parameters")
    if parameters is None:
        parameters = {"type": "object", "properties": {}}
    if not isinstance(parameters, dict):
        raise bad_request(f"{where}.parameters must be a JSON schema", where)
    return Tool(name, text if isinstance(text, str) else "", parameters)


def _named(choice: dict[str, Any]) -> Any:
    function = choice.get("function")
    return function.get("name") if isinstance(function, dict) else choice.get("name")
