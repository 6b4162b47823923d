"""A `/v1/responses` body read as a chat: items become messages, flat tools become functions."""

from __future__ import annotations

from typing import Any

from agentmem.engine.api.errors import bad_request
from agentmem.engine.api.fields import Fields

Message = dict[str, Any]

SAME = (
    "model", "temperature", "top_p", "top_k", "seed", "stop", "max_output_tokens", "stream",
    "tool_choice", "parallel_tool_calls", "session_id", "vllm_xargs", "cache_salt",
    "traffic_class", "drafts", "reuse", "forced_tokens", "forced_text", "chat_template_kwargs",
    "ignore_eos",
)  # fmt: skip
"""Fields that mean what they mean in a chat."""
STATEFUL = ("previous_response_id", "conversation", "background", "prompt")
LOGPROBS = "message.output_text.logprobs"
SKIPPED = {"reasoning"}
"""Items that say nothing to these models."""


def as_chat(body: Fields) -> Fields:
    """The same request as a chat body; 400 for what would need stored responses."""
    for name in STATEFUL:
        if body.get(name):
            message = f"{name} is not supported: this server stores no responses; send all input"
            raise bad_request(message, name, "unsupported")
    chat = {name: body.get(name) for name in SAME if body.get(name) is not None}
    chat["messages"] = _messages(body)
    if (tools := body.get("tools")) is not None:
        chat["tools"] = _tools(tools)
    if (format_ := Fields(body.table("text") or {}).table("format")) is not None:
        chat["response_format"] = _format(format_)
    include = body.get("include") or []
    if not isinstance(include, list):
        raise bad_request("include must be a list", "include")
    if LOGPROBS in include:
        chat |= {"logprobs": True, "top_logprobs": body.get("top_logprobs")}
    return Fields(chat)


def _messages(body: Fields) -> list[Message]:
    instructions, given = body.text("instructions"), body.get("input")
    messages: list[Message] = []
    if instructions:
        messages.append({"role": "system", "content": instructions})
    if isinstance(given, str) and given:
        return [*messages, {"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise bad_request("input must be a string or a list of items, and not empty", "input")
    for at, item in enumerate(given):
        if (message := _item(item, f"input[{at}]")) is not None:
            _append(messages, message)
    return messages


def _append(messages: list[Message], message: Message) -> None:
    """Calls that follow each other, or the assistant's words, are one message."""
    last = messages[-1] if messages else None
    joins = message.get("tool_calls") and last is not None and last["role"] == "assistant"
    if joins and last is not None:
        last.setdefault("tool_calls", []).extend(message["tool_calls"])
    else:
        messages.append(message)


def _item(item: Any, where: str) -> Message | None:
    if not isinstance(item, dict):
        raise bad_request(f"{where} must be an object", where)
    kind = item.get("type") or "message"
    if not isinstance(kind, str):
        raise bad_request(f"{where}.type must be a string", where)
    if kind == "message":
        return {"role": item.get("role"), "content": _content(item.get("content"))}
    if kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments", "{}")}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    if kind == "function_call_output":
        output = _content(item.get("output"))
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": output}
    if kind in SKIPPED:
        return None
    raise bad_request(f"{where}: items of type {kind} are not supported", where, "unsupported")


def _content(content: Any) -> Any:
    """Text parts under the names that chats use; all else is left to be refused there."""
    if not isinstance(content, list):
        return content
    texts = ("input_text", "output_text")
    return [
        {**part, "type": "text"} if isinstance(part, dict) and part.get("type") in texts else part
        for part in content
    ]


def _tools(tools: Any) -> Any:
    if not isinstance(tools, list):
        return tools
    flat = []
    for at, tool in enumerate(tools):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if isinstance(tool, dict) and kind != "function":
            message = f"tools[{at}]: only tools of type function are supported, not {kind}"
            raise bad_request(message, f"tools[{at}]", "unsupported")
        function = {k: v for k, v in tool.items() if k != "type"} if kind else tool
        flat.append({"type": "function", "function": function} if kind else tool)
    return flat


def _format(format_: dict[str, Any]) -> dict[str, Any]:
    if format_.get("type") != "json_schema":
        return {"type": format_.get("type")}
    return {"type": "json_schema", "json_schema": {"schema": format_.get("schema")}}
