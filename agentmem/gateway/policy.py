"""The one place where the gateway changes a request: sampling, session, constraints, usage."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from agentmem.gateway.asked import SESSION_HEADER, Asked
from agentmem.gateway.kinds import recognise
from agentmem.gateway.options import GatewayOptions, TrafficClass
from agentmem.records import Phase, Scope

TRAFFIC_HEADER = "X-Agentmem-Traffic"
TENANT_HEADER = "X-Cache-Salt"
CONSTRAIN_HEADER = "X-Agentmem-Constrain"
REQUEST_HEADER = "X-Request-Id"
MAX_SESSION_CHARS = 256
_GUIDES = ("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar")
"""Other servers' names for a grammar over the output."""
_OWN_FIELDS = ("session_id", "cache_salt", "traffic_class")
"""Whose call it is and how urgent: said in headers by us, and a body field would win over them."""
_GENERATES = ("chat", "completion", "responses")


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The request as it leaves for the upstream, and what was decided about it."""

    body: bytes
    headers: dict[str, str]
    """To be set over the system's own."""
    session_id: str | None
    traffic: TrafficClass
    seed: int | None
    constrained: str | None
    strip_usage: bool
    """The usage chunk was asked for by us and is not for the system's eyes."""
    ways: Mapping[str, Any] = field(default_factory=dict)
    """Fields for our engine on how to go about it; no part of the request, so not in `body`."""

    def sent(self, extra: Mapping[str, Any] | None = None) -> bytes:
        """The body with `ways` and `extra` in it, which win over equal names."""
        return spliced(self.body, {**self.ways, **(extra or {})})


def spliced(body: bytes, fields: Mapping[str, Any]) -> bytes:
    """A JSON object's bytes with fields appended: of two equal names the last one counts."""
    if not fields:
        return body
    head, more = body.rstrip()[:-1].rstrip(), _dump(fields)[1:]
    return head + (b"" if head.endswith(b"{") else b",") + more


def session_id(scope: Scope, traffic: TrafficClass) -> str:
    """One session per run, system, repeat (the tenant), history and traffic class."""
    return _visible(f"{scope.tenant}.{scope.history}", f".{traffic}")


def _visible(name: str, end: str = "") -> str:
    """Visible ASCII of bounded length, by which a server tells names apart."""
    plain = quote(name, safe="._-:@+") + end
    if len(plain) <= MAX_SESSION_CHARS:
        return plain
    return f"{hashlib.sha256(plain.encode()).hexdigest()}{end}"


def call_seed(options: GatewayOptions, request_hash: str, occurrence: int, repeat: int = 0) -> int:
    """Seed of the `occurrence`-th asking of one body: the same in every run, 31 bits.

    Another one in each repeat, so that repeats differ where sampling is not greedy.
    """
    text = f"{options.seed}:{request_hash}:{occurrence}" + (f":{repeat}" if repeat else "")
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) >> 1


def outgoing(
    asked: Asked,
    scope: Scope,
    phase: Phase | None,
    occurrence: int,
    call_id: str,
    options: GatewayOptions,
) -> Outgoing:
    """Apply the run's policy. Fields that no rule names go out as they came in."""
    traffic = options.traffic_class(phase)
    headers = {TRAFFIC_HEADER: traffic, TENANT_HEADER: _visible(scope.tenant)}
    headers[REQUEST_HEADER] = call_id
    if asked.endpoint not in _GENERATES or asked.body is None:
        return Outgoing(asked.raw, headers, None, traffic, None, None, False)
    session = session_id(scope, traffic)
    headers |= {SESSION_HEADER: session, CONSTRAIN_HEADER: options.constrain}
    body = {k: v for k, v in asked.body.items() if k not in _OWN_FIELDS}
    drawn = call_seed(options, asked.request_hash, occurrence, scope.repeat)
    seed = _sample(body, asked, drawn, options)
    if options.constrain == "all":
        _declare(body, asked, scope, phase)
    constrained = _constrain(body, options.constrain)
    strip = _ask_usage(body, asked, options)
    raw = asked.raw if body == asked.body else _dump(body)
    ways = options.ways
    return Outgoing(raw, headers, session, traffic, seed, constrained, strip, ways)


def _sample(body: dict[str, Any], asked: Asked, seed: int, options: GatewayOptions) -> int | None:
    """Set temperature and seed; returns the seed sent. The responses API knows no seed."""
    if options.sampling == "fixed":
        body["temperature"] = options.temperature
    if asked.endpoint == "responses":
        return None
    if options.sampling == "fixed" or body.get("seed") is None:
        body["seed"] = seed
    sent = body["seed"]
    return sent if isinstance(sent, int) else None


def _ask_usage(body: dict[str, Any], asked: Asked, options: GatewayOptions) -> bool:
    """Have the upstream end a stream with its usage; True when the system had not asked."""
    if not asked.stream or asked.endpoint == "responses" or not options.ask_stream_usage:
        return False
    if asked.wants_usage:
        return False
    given = body.get("stream_options")
    body["stream_options"] = {
        **(given if isinstance(given, Mapping) else {}),
        "include_usage": True,
    }
    return True


def _constrain(body: dict[str, Any], policy: str) -> str | None:
    """Apply the constraint policy and say what constrains this call's output.

    off: nothing may: declared formats and grammars are dropped, forced tools become a free
    choice, the engine is told by header. tools: what the system declares. all: declared tools
    are strict as well, a prompt that asks for a JSON object in words gets one, and a reply whose
    schema the adapter declares is held to it.
    """
    if policy == "off":
        _free(body)
        return None
    if policy == "all":
        _tighten(body)
    if body.get("tools") and body.get("tool_choice") != "none":
        return "tools"
    declared = _format_type(body)
    if declared in ("json_object", "json_schema"):
        return declared
    return "json_schema" if any(body.get(name) for name in _GUIDES) else None


def _declare(body: dict[str, Any], asked: Asked, scope: Scope, phase: Phase | None) -> None:
    """Hold a reply to its adapter's schema where the system asked for no more than JSON."""
    if not any(mark.schema for mark in scope.fingerprints):
        return
    mark = recognise(scope.fingerprints, asked.endpoint, phase, asked.texts())
    if mark is None or mark.schema is None or body.get("tools"):
        return
    if _format_type(body) in (None, "text", "json_object"):
        named = {"name": mark.kind, "schema": json.loads(mark.schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": named}


def _free(body: dict[str, Any]) -> None:
    for name in ("response_format", *_GUIDES):
        body.pop(name, None)
    if isinstance(text := body.get("text"), Mapping):
        body["text"] = {k: v for k, v in text.items() if k != "format"}
    if body.get("tool_choice") not in (None, "none", "auto"):
        body["tool_choice"] = "auto"
    if isinstance(body.get("tools"), list):
        body["tools"] = [_with_strict(tool, None) for tool in body["tools"]]


def _tighten(body: dict[str, Any]) -> None:
    if isinstance(body.get("tools"), list) and body["tools"]:
        body["tools"] = [_with_strict(tool, True) for tool in body["tools"]]
    elif "messages" in body and _format_type(body) is None and _asks_for_object(body):
        body["response_format"] = {"type": "json_object"}


def _with_strict(tool: Any, strict: bool | None) -> Any:
    """A tool declaration with its `strict` flag set or taken away."""
    if not isinstance(tool, Mapping):
        return tool
    if isinstance(inner := tool.get("function"), Mapping):
        return {**tool, "function": _with_strict(inner, strict)}
    bare = {k: v for k, v in tool.items() if k != "strict"}
    return bare if strict is None else {**bare, "strict": strict}


def _format_type(body: Mapping[str, Any]) -> str | None:
    """Type of the declared output format, in chat or responses spelling."""
    given = body.get("response_format")
    if given is None and isinstance(text := body.get("text"), Mapping):
        given = text.get("format")
    kind = given.get("type") if isinstance(given, Mapping) else None
    return kind if isinstance(kind, str) else None


def _asks_for_object(body: Mapping[str, Any]) -> bool:
    """The prompt names JSON and no list of it, the rule hosted APIs have for `json_object`."""
    words = json.dumps(body.get("messages"), ensure_ascii=False).lower()
    return "json" in words and not any(w in words for w in ("json array", "json list"))


def _dump(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(
        errors="surrogatepass"
    )
