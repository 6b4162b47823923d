"""Reply bodies and stream chunks of the OpenAI-compatible endpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.fake.bill import Served


@dataclass(frozen=True, slots=True)
class Written:
    """What the pretended model says: pieces of text, or tool calls."""

    pieces: tuple[str, ...]
    finish: str
    tool_calls: tuple[dict[str, Any], ...] = ()


def usage(served: Served, dialect: str) -> dict[str, Any]:
    """The usage object of one request in a server's dialect."""
    read, write, output = served.cached_tokens, served.cache_write_tokens, served.output_tokens
    if dialect == "anthropic":
        return {
            "input_tokens": served.input_tokens - read - write,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": write,
            "output_tokens": output,
        }
    total = served.input_tokens + output
    names = ("input_tokens", "output_tokens") if served.endpoint == "responses" else _CHAT
    told: dict[str, Any] = {names[0]: served.input_tokens, "total_tokens": total}
    if served.endpoint != "embedding":
        told[names[1]] = output
    if dialect == "openai":
        told[names[0] + "_details"] = {"cached_tokens": read}
    if dialect == "deepseek":
        told |= {
            "prompt_cache_hit_tokens": read,
            "prompt_cache_miss_tokens": served.input_tokens - read,
        }
    if dialect == "agentmem":
        told["agentmem"] = engine_usage(served)
    return told


_CHAT = ("prompt_tokens", "completion_tokens")


def engine_usage(served: Served) -> dict[str, Any]:
    """`usage.agentmem` of docs/schemas."""
    return {
        "version": 1,
        "request_id": served.request_id,
        "session_id": served.headers.get("x-session-id"),
        "traffic_class": served.headers.get("x-agentmem-traffic"),
        "queue_s": 0.0,
        "prefill_s": 0.001,
        "decode_s": 0.002,
        "ttft_s": 0.001,
        "uncached_tokens": served.input_tokens - served.cached_tokens,
        "cached_tokens": served.cached_tokens,
        "generated_tokens": served.output_tokens,
    }


def whole(served: Served, written: Written, model: str, told: dict[str, Any] | None) -> Any:
    """Body of a reply that is not streamed."""
    text = "".join(written.pieces)
    if served.endpoint == "responses":
        return _response(served, written, model, told)
    choice: dict[str, Any] = {"index": 0, "finish_reason": written.finish}
    if served.endpoint == "chat":
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        if written.tool_calls:
            message["tool_calls"] = list(written.tool_calls)
        choice["message"] = message
    else:
        choice["text"] = text
    kind = "chat.completion" if served.endpoint == "chat" else "text_completion"
    body = {"id": served.request_id, "object": kind, "created": 0, "model": model}
    body["choices"] = [choice]
    return body | ({} if told is None else {"usage": told})


def _response(
    served: Served, written: Written, model: str, told: dict[str, Any] | None
) -> dict[str, Any]:
    part = {"type": "output_text", "text": "".join(written.pieces), "annotations": []}
    item = {"id": "msg", "type": "message", "role": "assistant", "status": "completed"}
    return {
        "id": served.request_id,
        "object": "response",
        "created_at": 0,
        "model": model,
        "status": "completed" if written.finish != "length" else "incomplete",
        "output": [item | {"content": [part]}],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": told,
    }


def first_chunks(served: Served, model: str) -> Iterator[bytes]:
    """What a stream begins with: the role, before any token."""
    if served.endpoint == "chat":
        yield _event(_chunk(served, model, {"role": "assistant", "content": ""}, None))


def piece_chunk(served: Served, model: str, piece: str) -> bytes:
    if served.endpoint == "responses":
        return _event({"type": "response.output_text.delta", "output_index": 0, "delta": piece})
    return _event(_chunk(served, model, {"content": piece}, None))


def last_chunks(
    served: Served, written: Written, model: str, told: dict[str, Any] | None, inline: bool
) -> Iterator[bytes]:
    """Finish reason, usage where it is told, and the end mark."""
    if served.endpoint == "responses":
        body = _response(served, written, model, told)
        yield _event({"type": f"response.{body['status']}", "response": body})
        return
    if written.tool_calls:
        calls = [{"index": i, **call} for i, call in enumerate(written.tool_calls)]
        yield _event(_chunk(served, model, {"tool_calls": calls}, None))
    last = _chunk(served, model, {}, written.finish)
    yield _event(last | ({"usage": told} if inline and told is not None else {}))
    if told is not None and not inline:
        yield _event(last | {"choices": [], "usage": told})
    yield b"data: [DONE]\n\n"


def _chunk(served: Served, model: str, delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
    if served.endpoint == "chat":
        choice["delta"] = delta
    else:
        choice["text"] = delta.get("content", "")
    kind = "chat.completion.chunk" if served.endpoint == "chat" else "text_completion"
    base = {"id": served.request_id, "object": kind, "created": 0, "model": model}
    return base | {"choices": [choice]}


def _event(data: dict[str, Any]) -> bytes:
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()
