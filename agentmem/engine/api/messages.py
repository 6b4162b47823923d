"""Chat messages of a request, checked and reduced to what templates read."""

from __future__ import annotations

import json
from typing import Any

from agentmem.engine.api.errors import bad_request
from agentmem.engine.api.fields import Fields

Message = dict[str, Any]

ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


def read_messages(body: Fields) -> list[Message]:
    """`messages` with text content and roles system, user, assistant, tool; 400 otherwise."""
    raw = body.get("messages")
    if not isinstance(raw, list) or not raw:
        raise bad_request("messages must be a non-empty list", "messages")
    return [_message(item, f"messages[{at}]") for at, item in enumerate(raw)]


def without_tools(messages: list[Message]) -> list[Message]:
    """The same conversation in plain messages, for templates that know no tools."""
    plain: list[Message] = []
    for message in messages:
        content = message["content"]
        calls = [json.dumps(call["function"]) for call in message.get("tool_calls", ())]
        role = message["role"]
        if role == "tool":
            role, content = "user", f"Result of {message.get('name') or 'the tool'}: {content}"
        text = "\n".join([content, *calls] if content else calls) if calls else content
        plain.append({"role": role, "content": text})
    return plain


def _message(raw: Any, where: str) -> Message:
    if not isinstance(raw, dict):
        raise bad_request(f"{where} must be an object", where)
    stated = raw.get("role")
    role = ROLES.get(stated) if isinstance(stated, str) else None
    if role is None:
        raise bad_request(f"{where}.role must be one of {', '.join(ROLES)}", f"{where}.role")
    message: Message = {"role": role, "content": _content(raw, f"{where}.content")}
    for name in ("name", "tool_call_id"):
        if isinstance(raw.get(name), str):
            message[name] = raw[name]
    if raw.get("tool_calls"):
        message["tool_calls"] = _calls(raw["tool_calls"], f"{where}.tool_calls")
    return message


def _content(raw: dict[str, Any], where: str) -> str:
    content = raw.get("content")
    if content is None and (raw.get("role") in ("assistant", "function") or "content" in raw):
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise bad_request(f"{where} must be a string or a list of text parts", where)
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get("text", part.get("refusal")) if isinstance(part, dict) else part
        if kind not in (None, "text", "input_text", "refusal") or not isinstance(text, str):
            raise bad_request(f"{where}: only parts of type text are supported", where)
        texts.append(text)
    return "\n".join(texts)


def _calls(raw: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(raw, list):
        raise bad_request(f"{where} must be a list", where)
    calls = []
    for item in raw:
        function = item.get("function") if isinstance(item, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise bad_request(f"{where}: every call needs function.name", where)
        given = function.get("arguments", {})
        arguments = _parsed(given) if isinstance(given, str) else given
        entry = {"type": "function", "function": {"name": function["name"], "arguments": arguments}}
        calls.append({"id": item["id"], **entry} if isinstance(item.get("id"), str) else entry)
    return calls


def _parsed(text: str) -> Any:
    """Arguments as templates want them, an object; text that is no JSON stays text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
