"""The engine without a server: one model, one thread, requests in, text and records out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Literal, TypeVar

import torch

from agentmem.engine.checks import check_sampling, room
from agentmem.engine.cputime import usable_cores
from agentmem.engine.errors import RequestError
from agentmem.engine.identity import identity_of
from agentmem.engine.kernels.base import RoundingOrder
from agentmem.engine.kernels.choose import choose
from agentmem.engine.kv.layout import BLOCK_SIZE, KVKind, KVPages
from agentmem.engine.kv.manager import KVManager
from agentmem.engine.kv.ownership import Ledger
from agentmem.engine.kv.registry import SessionStats
from agentmem.engine.kv.retention import Retention
from agentmem.engine.kv.sessionfile import Stamp
from agentmem.engine.kv.transfer import Transferred, Transfers
from agentmem.engine.loader import MODES, load_decoder
from agentmem.engine.loader import Mode as Mode
from agentmem.engine.models.decoder import Decoder
from agentmem.engine.quant.calibration import Calibration, load_calibration
from agentmem.engine.request import Delta, Request, RequestRecord
from agentmem.engine.scheduler import Limits
from agentmem.engine.sequence import Costs, Sequence
from agentmem.engine.stats import EngineStats
from agentmem.engine.text import TextStream
from agentmem.engine.truth import StepRow
from agentmem.engine.turns import CLASSES, Turns
from agentmem.engine.worker import EngineWorker
from agentmem.errors import UsageError
from agentmem.modelfiles.fetch import model_name, verify
from agentmem.modelfiles.tokenizer import Tokenizer, load_tokenizer

T = TypeVar("T")
KVChoice = Literal["auto", "fp32", "bf16", "int8"]
BackendChoice = Literal["auto", "torch", "native"]
CACHE_BYTES = 1 << 30
_MOST_RETRY_S = 600.0


class EngineCore:
    """One loaded model. Thread-safe; callbacks come from the engine's own thread.

    `window` is in tokens; `vocab_size` is the width of the logits and of a constraint's mask;
    `weights` is the sha256 of the model's files; `notes` are lines on what was asked for and could
    not be had. An embedder that shares `turns` never computes at the same time.
    """

    def __init__(
        self,
        decoder: Decoder,
        tokenizer: Tokenizer,
        *,
        name: str,
        mode: Mode,
        weights: str = "",
        window: int | None = None,
        kv: KVChoice = "auto",
        cache_bytes: int = CACHE_BYTES,
        drafts: bool = True,
        limits: Limits | None = None,
        max_queued_background_tokens: int | None = None,
        session_ttl_s: float = 300.0,
        session_ledger: Path | str | None = None,
        calibration: str = "",
        turns: Turns | None = None,
        on_step: Callable[[StepRow], None] | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.mode: Mode = mode
        self.backend = decoder.kernels.name
        self.weights = weights
        self.tokenizer = tokenizer
        self.notes = notes
        self.arch = decoder.config.arch
        self.vocab_size = decoder.config.vocab_size
        self.window = min(window or decoder.config.window, decoder.config.window)
        self.threads = torch.get_num_threads()
        self.kv: KVKind = _kind(kv, decoder)
        self.decoder = decoder
        self.turns = turns or Turns()
        self.limits = limits or Limits()
        self._vocabulary = tokenizer.vocabulary
        self._most_queued = max_queued_background_tokens
        self.pages = _pages(decoder, self.kv, cache_bytes, self.window)
        self._kv = KVManager(
            decoder.groups,
            blocks=self.pages[0].blocks,
            identity=identity_of(decoder, tokenizer, weights, mode, self.kv, calibration),
            retention=Retention(session_ttl_s),
            block_bytes=[pages.block_bytes for pages in self.pages],
        )
        ledger = Ledger(None if session_ledger is None else Path(session_ledger))
        self._transfers = Transfers(self._kv, self.pages, self._stamp(), ledger)
        self._running: dict[str, Sequence] = {}
        self._lock = threading.Lock()
        self._worker = self._start(drafts, on_step)

    @classmethod
    def load(
        cls,
        path: Path | str,
        *,
        mode: Mode = "bf16",
        threads: int | None = None,
        window: int | None = None,
        kv: KVChoice = "auto",
        backend: BackendChoice = "auto",
        invariant: bool = False,
        cache_bytes: int = CACHE_BYTES,
        drafts: bool = True,
        max_running: int = Limits().max_running,
        step_tokens: int = Limits().step_tokens,
        max_queued_background_tokens: int | None = None,
        session_ttl_s: float = 300.0,
        session_ledger: Path | str | None = None,
        calibration: Path | str | None = None,
        order: RoundingOrder = "round-first",
        turns: Turns | None = None,
        on_step: Callable[[StepRow], None] | None = None,
    ) -> EngineCore:
        """Read a GGUF file or a safetensors folder; DataError when it cannot be read or trusted.

        `window` may only shorten the model's own; `cache_bytes` bounds keys and values, but for one
        full window, which always fits. `threads` of None is all cores this process may use; torch
        knows one number per process. `invariant` makes an answer independent of what runs beside
        it. In the folder `session_ledger`, its own, an engine notes which sessions came and went.
        `on_step` hears of every step, in the engine's thread.
        """
        if mode not in MODES:
            raise UsageError(f"no engine mode {mode!r}; known: {', '.join(MODES)}")
        if max_running < 1 or step_tokens < max_running:
            raise UsageError("max_running must be 1 at least, and step_tokens at least max_running")
        path = Path(path)
        torch.set_num_threads(threads or usable_cores())
        weights = verify(path)
        kernels = choose(backend, invariant)
        scales = _scales(calibration, mode, weights)
        decoder = load_decoder(path, mode, kernels=kernels, order=order, calibration=scales)
        return cls(
            decoder,
            load_tokenizer(path),
            name=model_name(path),
            mode=mode,
            weights=weights,
            window=window,
            kv=kv,
            cache_bytes=cache_bytes,
            drafts=drafts,
            limits=Limits(step_tokens=step_tokens, max_running=max_running),
            max_queued_background_tokens=max_queued_background_tokens,
            session_ttl_s=session_ttl_s,
            session_ledger=session_ledger,
            turns=turns,
            on_step=on_step,
            calibration="" if scales is None else scales.digest,
            notes=decoder.notes,
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
        parameters, an id in use, a full background queue, a session that moved to another engine,
        or a closed engine. A fault of one request ends that request alone, with "abort".
        """
        check_sampling(request.sampling)
        if self.session_moved(request.session_id, request.tenant):
            message = f"session {request.session_id!r} has moved to another engine"
            raise RequestError("session_moved", message)
        sequence = Sequence(
            request=request,
            on_delta=on_delta,
            on_done=lambda record: self._done(request.request_id, on_done, record),
            max_tokens=room(request, self.window, self.vocab_size),
            costs=Costs(arrived_s=time.monotonic()),
        )
        with self._lock:
            if request.request_id in self._running:
                raise RequestError("duplicate_id", f"request {request.request_id!r} is running")
            self._admit(request)
            self._running[request.request_id] = sequence
        if not self._worker.hand_in(sequence):
            self._running.pop(request.request_id, None)
            raise RequestError("closed", "the engine is closed")

    def cancel(self, request_id: str) -> bool:
        """End a queued or running request with "abort"; False when it is not known (any more)."""
        sequence = self._running.get(request_id)
        if sequence is None:
            return False
        self._worker.cancel(sequence)
        return True

    def sessions(self, tenant: str | None = None) -> list[SessionStats]:
        """What is known of a tenant's sessions."""
        return self._kv.sessions(tenant)

    def session(self, session_id: str, tenant: str | None = None) -> SessionStats | None:
        """One session; None where the tenant has none of that id."""
        return self._kv.session(tenant, session_id)

    def drop_session(self, session_id: str, tenant: str | None = None) -> int:
        """Forget a session's cached state; gives the bytes freed, of what no one else shares."""
        return self._kv.drop(tenant, session_id)

    def session_moved(self, session_id: str | None, tenant: str | None = None) -> bool:
        """Whether another engine owns the session now."""
        return self._transfers.moved(tenant, session_id)

    def export_session(
        self, session_id: str, path: Path, *, tenant: str | None = None, move: bool = False
    ) -> Transferred:
        """Write a session's state to a new file; DataError with the reason when it cannot be.

        With `move`, whoever imports the file owns the session from then on.
        """
        return self.between_steps(
            lambda: self._transfers.export(path, tenant=tenant, session_id=session_id, move=move)
        )

    def import_session(
        self, path: Path, *, tenant: str | None = None, session_id: str | None = None
    ) -> Transferred:
        """Take in a session's file, under its own id or another; DataError, and nothing changed,
        when it does not fit.
        """
        return self.between_steps(
            lambda: self._transfers.import_(path, tenant=tenant, session_id=session_id)
        )

    def between_steps(self, work: Callable[[], T]) -> T:
        """Have something done in the engine's thread and wait for it; not from a callback.

        RequestError when the engine is closed.
        """
        done: Future[T] = Future()

        def errand() -> None:
            try:
                done.set_result(work())
            except BaseException as error:  # the caller's, whatever it is
                done.set_exception(error)

        if not self._worker.do(errand):
            raise RequestError("closed", "the engine is closed")
        return done.result()

    @property
    def cached_bytes(self) -> int:
        """Bytes of state kept for later requests."""
        return self._kv.counts().cached_bytes

    def stats(self) -> EngineStats:
        """Counts of the whole engine."""
        counts, done = self._kv.counts(), self._worker.counters
        scheduler = self._worker.scheduler
        return EngineStats(
            running={kind: scheduler.running(kind) for kind in CLASSES},
            waiting={kind: scheduler.waiting(kind) for kind in CLASSES},
            queued_tokens=dict(self._worker.backlog.tokens),
            requests=done.requests,
            kv_blocks_used=counts.used_blocks,
            kv_blocks_cached=counts.cached_blocks,
            kv_blocks_free=counts.free_blocks,
            kv_bytes_used=counts.used_bytes,
            kv_bytes_cached=counts.cached_bytes,
            queried_tokens=counts.queried_tokens,
            hit_tokens=counts.hit_tokens,
            prompt_tokens=done.prompt_tokens,
            generated_tokens=done.generated_tokens,
            cached_tokens=done.cached_tokens,
            drafted_tokens=done.drafted_tokens,
            accepted_tokens=done.accepted_tokens,
            preemptions=scheduler.preemptions,
            recomputed_tokens=done.recomputed_tokens,
            steps=done.steps,
            interrupted_steps=done.interrupted_steps,
            step_s=done.step_ns / 1e9,
            evictions=counts.evictions,
            sessions=counts.sessions,
        )

    def close(self) -> None:
        """Abort what is queued or running and join the engine's thread."""
        self._worker.stop()

    def _start(self, drafts: bool, on_step: Callable[[StepRow], None] | None) -> EngineWorker:
        worker = EngineWorker(
            self.decoder,
            self._kv,
            self.pages,
            self._open_text,
            self.tokenizer.eos_ids,
            limits=self.limits,
            turns=self.turns,
            drafts=drafts,
            on_step=on_step,
        )
        worker.start()
        worker.ready.wait()
        return worker

    def _open_text(self, sequence: Sequence) -> TextStream:
        stop = sequence.request.sampling.stop
        return TextStream(self._vocabulary, self.tokenizer.control_ids, stop)

    def _stamp(self) -> Stamp:
        return Stamp(
            weights=self.weights,
            mode=self.mode,
            backend=self.backend,
            kind=self.kv,
            tokenizer=self.tokenizer.name,
            block_size=self._kv.block_size,
            groups=Stamp.groups_of(self.decoder.groups),
            identity=self._kv.identity.hex(),
        )

    def _admit(self, request: Request) -> None:
        """Count a request into the queue; RequestError when that is too long already."""
        kind, backlog = request.traffic_class, self._worker.backlog
        most = self._most_queued if kind == "background" else None
        if backlog.add(kind, len(request.prompt), most):
            return
        queued = backlog.tokens[kind]
        wait_s = queued / max(1.0, self._worker.counters.prefill_tokens_s)
        raise RequestError(
            "overloaded",
            f"{queued} background tokens are queued already, and {most} are allowed",
            retry_after_s=min(max(1.0, wait_s), _MOST_RETRY_S),
        )

    def _done(
        self, request_id: str, on_done: Callable[[RequestRecord], None], record: RequestRecord
    ) -> None:
        self._running.pop(request_id, None)
        on_done(record)


def _scales(folder: Path | str | None, mode: Mode, weights: str) -> Calibration | None:
    if folder is None:
        return None
    if mode != "fp8":
        raise UsageError(f"a calibration serves the mode fp8, not {mode}")
    return load_calibration(folder, weights)


def _kind(choice: KVChoice, decoder: Decoder) -> KVKind:
    if choice != "auto":
        return choice
    return "fp32" if decoder.dtype == torch.float32 else "bf16"


def _pages(decoder: Decoder, kind: KVKind, budget: int, window: int) -> tuple[KVPages, ...]:
    """Pages of as many blocks as the budget pays for, but never too few for one full window."""
    sample = [KVPages.empty(spec, 1, BLOCK_SIZE, kind) for spec in decoder.groups]
    blocks = budget // sum(pages.block_bytes for pages in sample)
    # the null block, one that is being copied, and one beginning behind the window
    blocks = max(blocks, -(-window // BLOCK_SIZE) + 3)
    return tuple(KVPages.empty(spec, blocks, BLOCK_SIZE, kind) for spec in decoder.groups)
