"""How the fake behaves: what it reports, how slow it is, and how it fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tests.fake.bill import Served

OnChat = Callable[[dict[str, Any]], "str | dict[str, Any]"]
"""Reply to a request body: a text, or a whole assistant message (with tool calls, say)."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One planned failure, used up by the next request that fits `endpoint`.

    status: an error status before any work. overflow: 400 for a prompt past the window. reset:
    the connection breaks without a reply. hang: no reply within `hang_s`, then a reset. malformed:
    a body, or the event after `after_tokens` of a stream, that is no JSON. truncate: the connection
    breaks after `after_tokens` of the reply. silent_end: the stream ends in good order after
    `after_tokens`, but says neither why nor [DONE].
    """

    kind: Literal["status", "overflow", "reset", "hang", "malformed", "truncate", "silent_end"]
    status: int = 500
    after_tokens: int = 2
    hang_s: float = 30.0
    endpoint: Literal["chat", "completion", "responses", "embedding"] | None = None
    message: str = "planned failure"
    fits: Callable[[Served], bool] | None = None
    """Which requests it may meet; None: any of its endpoint."""


@dataclass(slots=True)
class Behaviour:
    """Knobs; may be turned while the server runs."""

    model: str = "fake-chat"
    embed_model: str = "fake-embed"
    dims: int = 32
    max_model_len: int = 8192
    usage: Literal["asked", "always", "never"] = "asked"
    """asked: streams carry usage where the request says so, as hosted APIs do."""
    cache: Literal["none", "openai", "deepseek", "anthropic", "agentmem"] = "none"
    """Whether and in which dialect the prompt's cached part is reported."""
    first_token_s: float = 0.0
    token_s: float = 0.0
    """Delays before the first token and before each later one."""
    embed_s: float = 0.0
    on_chat: OnChat | None = None
    usage_in_last_chunk: bool = False
    """Usage rides on the chunk with the finish reason, as some servers do."""
    usage_pause_s: float = 0.0
    """Delay between a stream's finish reason and its usage."""
    reports: bool = False
    """Tell at /agentmem/requests/ID what was computed for a request whose client left."""
