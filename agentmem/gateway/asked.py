"""What a request says about itself: endpoint, model, texts, limits, session."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agentmem.records import Endpoint

_MOST_LEVELS = 200
_INT64 = 2**63 - 1
SESSION_HEADER = "X-Session-ID"
_ENDPOINTS: dict[str, Endpoint] = {
    "chat/completions": "chat",
    "completions": "completion",
    "responses": "responses",
    "embeddings": "embedding",
}


def endpoint_of(method: str, tail: str) -> Endpoint:
    """Endpoint of a path below `/v1/`; whatever is no model call is "other"."""
    return _ENDPOINTS.get(tail.rstrip("/"), "other") if method == "POST" else "other"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as the system sent it. `body` is None when it is no JSON object."""

    endpoint: Endpoint
    raw: bytes
    body: dict[str, Any] | None
    request_hash: str
    """sha256 of `raw`, hex."""
    sent_session_id: str | None

    @property
    def stream(self) -> bool:
        return self._get("stream") is True

    @property
    def wants_usage(self) -> bool:
        """The system itself asked for usage at the end of its stream."""
        options = self._get("stream_options")
        return isinstance(options, Mapping) and options.get("include_usage") is True

    @property
    def model(self) -> str | None:
        value = self._get("model")
        return value if isinstance(value, str) else None

    @property
    def temperature(self) -> float | None:
        value = self._get("temperature")
        known = isinstance(value, float) or _is_count(value)
        return float(value) if known else None

    @property
    def max_tokens(self) -> int | None:
        for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"):
            if _is_count(value := self._get(name)):
                return int(value)
        return None

    @property
    def answers(self) -> int:
        """How many answers were asked for: `n`, for each prompt."""
        n = self._get("n")
        prompts = self.sequences if self.endpoint == "completion" else 1
        return (n if _is_count(n) and n > 0 else 1) * (prompts or 1)

    @property
    def sequences(self) -> int | None:
        """Texts to embed, or prompts to complete; None for other endpoints."""
        if self.endpoint not in ("embedding", "completion"):
            return None
        given = self._get("input" if self.endpoint == "embedding" else "prompt")
        if isinstance(given, list) and not _is_token_list(given):
            return len(given)
        return None if given is None else 1

    def texts(self) -> list[str]:
        """All texts the model is to read, in order; templates and tool declarations left out."""
        return list(_texts(self.body)) if self.body is not None else []

    def token_ids(self) -> int:
        """Number of tokens given as ids instead of text."""
        given = self._get("input" if self.endpoint == "embedding" else "prompt")
        if not isinstance(given, list):
            return 0
        if _is_token_list(given):
            return len(given)
        return sum(len(one) for one in given if isinstance(one, list))

    def _get(self, name: str) -> Any:
        return None if self.body is None else self.body.get(name)


def read_request(endpoint: Endpoint, raw: bytes, headers: Mapping[str, str]) -> Asked:
    """Facts of a request body; a body that cannot be parsed is left to the upstream to refuse."""
    try:
        body = json.loads(raw) if raw else None
    except (ValueError, RecursionError):
        body = None
    body = body if isinstance(body, dict) and not _too_deep(raw, body) else None
    digest = hashlib.sha256(raw).hexdigest()
    return Asked(endpoint, raw, body, digest, _sent_session(body or {}, headers))


def _sent_session(body: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
    """First non-empty of body field, header, `vllm_xargs`: the order the engine uses."""
    extra = body.get("vllm_xargs")
    candidates = [body.get("session_id"), headers.get(SESSION_HEADER)]
    if isinstance(extra, Mapping):
        candidates.append(extra.get("session_id"))
    return next((one for one in candidates if isinstance(one, str) and one), None)


def _is_count(value: object) -> bool:
    """A whole number that a row can hold; JSON's have no end."""
    return isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value <= _INT64


def _too_deep(raw: bytes, body: object) -> bool:
    """Nested so deeply that walking or writing it could exhaust the stack."""
    if raw.count(b"[") + raw.count(b"{") <= _MOST_LEVELS:
        return False
    level = [body]
    for _ in range(_MOST_LEVELS):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
    return bool(level)


def _is_token_list(given: list[Any]) -> bool:
    return bool(given) and all(isinstance(one, int) for one in given)


def _texts(body: Mapping[str, Any]) -> Iterator[str]:
    yield from _strings(body.get("instructions"))
    messages = body.get("messages")
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, Mapping):
            yield from _strings(message.get("content"))
            yield from _call_texts(message.get("tool_calls"))
    yield from _strings(body.get("prompt"))
    yield from _strings(body.get("input"))


def _strings(value: object) -> Iterator[str]:
    """Strings of a content field: a string, a list of them, text parts, nested messages."""
    if isinstance(value, str):
        yield _whole(value)
    elif isinstance(value, Mapping):
        for name in ("text", "content", "arguments", "output"):
            yield from _strings(value.get(name))
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)


def _call_texts(calls: object) -> Iterator[str]:
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            for part in (function.get("name"), function.get("arguments")):
                if isinstance(part, str):
                    yield _whole(part)
                elif part is not None:
                    yield _whole(json.dumps(part, ensure_ascii=False))


def _whole(text: str) -> str:
    """Text that a tokenizer takes: halves of a surrogate pair replaced."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
