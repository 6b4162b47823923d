"""The engine without a server: one model, one thread, requests in, text and records out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from agentmem.engine.request import Delta, Request, RequestRecord
from agentmem.modelfiles.tokenizer import Tokenizer

Mode = Literal["bf16", "fp32", "int8"]
DEFAULT_MAX_TOKENS = 256


class EngineCore:
    """One loaded model. Thread-safe; callbacks come from the engine's own thread.

    Attributes: `name` of the model, `arch`, `window` in tokens, `vocab_size` (width of the logits and
    of a constraint's mask), `tokenizer`, `mode`, `backend`, `threads`, `weights` (sha256 of the files).
    """

    name: str
    arch: str
    window: int
    vocab_size: int
    tokenizer: Tokenizer
    mode: Mode
    backend: str
    threads: int
    weights: str

    @classmethod
    def load(
        cls,
        path: Path | str,
        *,
        mode: Mode = "bf16",
        threads: int | None = None,
        window: int | None = None,
        cache_bytes: int = 1 << 30,
    ) -> EngineCore:
        """Read a GGUF file or a safetensors folder; DataError when it cannot be read or trusted.

        `window` may only shorten the model's own; `cache_bytes` bounds the kept session prefixes.
        """
        raise NotImplementedError

    def submit(
        self,
        request: Request,
        on_delta: Callable[[Delta], None],
        on_done: Callable[[RequestRecord], None],
    ) -> None:
        """Queue a request; returns at once.

        `on_delta` gets text as it is ready, the last one with `finish_reason`; `on_done` follows,
        exactly once. Raises RequestError (nothing is queued then) for an empty prompt, a prompt that
        leaves no room in the window, ids outside the vocabulary or impossible sampling parameters.
        An error inside a step ends the request with finish_reason "abort".
        """
        raise NotImplementedError

    def cancel(self, request_id: str) -> bool:
        """End a queued or running request with "abort"; False when it is not known (any more)."""
        raise NotImplementedError

    def drop_session(self, session_id: str, tenant: str | None = None) -> int:
        """Forget a session's cached state; gives the bytes freed."""
        raise NotImplementedError

    def close(self) -> None:
        """Abort what is queued or running and join the engine's thread."""
        raise NotImplementedError
