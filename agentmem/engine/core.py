"""The engine without a server: one model, one thread, requests in, text and records out."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch

from agentmem.engine.cache import PrefixPool
from agentmem.engine.cputime import usable_cores
from agentmem.engine.errors import RequestError
from agentmem.engine.loader import load_decoder
from agentmem.engine.models.decoder import Decoder
from agentmem.engine.request import Delta, Request, RequestRecord, Sampling
from agentmem.engine.sampler import Sampler
from agentmem.engine.sequence import Costs, Sequence
from agentmem.engine.text import TextStream
from agentmem.engine.worker import EngineWorker
from agentmem.errors import UsageError
from agentmem.modelfiles.fetch import model_name, verify
from agentmem.modelfiles.tokenizer import Tokenizer, load_tokenizer

Mode = Literal["bf16", "fp32"]
DEFAULT_MAX_TOKENS = 256
_DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


class EngineCore:
    """One loaded model. Thread-safe; callbacks come from the engine's own thread.

    `window` is in tokens; `vocab_size` is the width of the logits and of a constraint's mask;
    `weights` is the sha256 of the model's files.
    """

    backend = "torch"

    def __init__(
        self,
        decoder: Decoder,
        tokenizer: Tokenizer,
        *,
        name: str,
        mode: Mode,
        weights: str = "",
        window: int | None = None,
        cache_bytes: int = 1 << 30,
    ) -> None:
        self.name = name
        self.mode: Mode = mode
        self.weights = weights
        self.tokenizer = tokenizer
        self.arch = decoder.config.arch
        self.vocab_size = decoder.config.vocab_size
        self.window = min(window or decoder.config.window, decoder.config.window)
        self.threads = torch.get_num_threads()
        self.decoder = decoder
        self._vocabulary = tokenizer.vocabulary
        self._pool = PrefixPool(cache_bytes)
        self._running: dict[str, Sequence] = {}
        self._lock = threading.Lock()
        self._worker = EngineWorker(decoder, self._pool, tokenizer.eos_ids)
        self._worker.start()
        self._worker.ready.wait()

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
        `threads` of None is all cores this process may use; torch knows one number per process.
        """
        if mode not in _DTYPES:
            raise UsageError(f"no engine mode {mode!r}; known: {', '.join(_DTYPES)}")
        path = Path(path)
        torch.set_num_threads(threads or usable_cores())
        weights = verify(path)
        decoder = load_decoder(path, _DTYPES[mode])
        return cls(
            decoder,
            load_tokenizer(path),
            name=model_name(path),
            mode=mode,
            weights=weights,
            window=window,
            cache_bytes=cache_bytes,
        )

    def submit(
        self,
        request: Request,
        on_delta: Callable[[Delta], None],
        on_done: Callable[[RequestRecord], None],
    ) -> None:
        """Queue a request; returns at once.

        `on_delta` gets text as it becomes certain, the last one with `finish_reason`; `on_done`
        follows, exactly once. Raises RequestError, and queues nothing, for an empty prompt, a
        request that does not fit the window, ids outside the vocabulary, impossible sampling
        parameters, an id in use, or a closed engine. A fault inside a step ends that request alone,
        with "abort".
        """
        check_sampling(request.sampling)
        sequence = Sequence(
            request=request,
            on_delta=on_delta,
            on_done=lambda record: self._done(request.request_id, on_done, record),
            sampler=Sampler(request.sampling, request.constraint),
            text=TextStream(self._vocabulary, self.tokenizer.control_ids, request.sampling.stop),
            max_tokens=self._room(request),
            costs=Costs(arrived_s=time.monotonic()),
            tokens=list(request.prompt),
        )
        with self._lock:
            if request.request_id in self._running:
                raise RequestError("duplicate_id", f"request {request.request_id!r} is running")
            self._running[request.request_id] = sequence
        if not self._worker.hand_in(sequence):
            self._running.pop(request.request_id, None)
            raise RequestError("closed", "the engine is closed")

    def cancel(self, request_id: str) -> bool:
        """End a queued or running request with "abort"; False when it is not known (any more)."""
        sequence = self._running.get(request_id)
        if sequence is None:
            return False
        sequence.cancelled = True
        self._worker.poke()
        return True

    def drop_session(self, session_id: str, tenant: str | None = None) -> int:
        """Forget a session's cached state; gives the bytes freed."""
        return self._pool.drop((tenant, session_id))

    @property
    def cached_bytes(self) -> int:
        """Bytes of session state kept for later requests."""
        return self._pool.size_bytes

    def close(self) -> None:
        """Abort what is queued or running and join the engine's thread."""
        self._worker.stop()

    def _done(
        self, request_id: str, on_done: Callable[[RequestRecord], None], record: RequestRecord
    ) -> None:
        self._running.pop(request_id, None)
        on_done(record)

    def _room(self, request: Request) -> int:
        """Tokens that may be generated; RequestError when the prompt or the wish is too long."""
        prompt, wanted = len(request.prompt), request.sampling.max_tokens
        if prompt == 0:
            raise RequestError("invalid_prompt", "the prompt is empty", "prompt")
        if min(request.prompt) < 0 or max(request.prompt) >= self.vocab_size:
            limit = f"0..{self.vocab_size - 1}"
            raise RequestError("invalid_prompt", f"prompt ids must be {limit}", "prompt")
        if prompt + (wanted or 1) > self.window:
            asked = "" if wanted is None else f" and {wanted} for the answer"
            raise RequestError(
                "context_length_exceeded",
                f"the window is {self.window} tokens; the prompt has {prompt}{asked}",
                "messages",
            )
        return wanted or min(DEFAULT_MAX_TOKENS, self.window - prompt)


def check_sampling(sampling: Sampling) -> None:
    """RequestError naming the first parameter that cannot be used."""
    s = sampling
    wrong = {
        "temperature": not (math.isfinite(s.temperature) and s.temperature >= 0),
        "top_p": not 0 < s.top_p <= 1,
        "top_k": s.top_k < 0,
        "max_tokens": s.max_tokens is not None and s.max_tokens < 1,
    }
    for name, is_wrong in wrong.items():
        if is_wrong:
            value = getattr(s, name)
            raise RequestError("invalid_sampling", f"{name} cannot be {value}", name)
