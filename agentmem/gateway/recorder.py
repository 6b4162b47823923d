"""Turns finished exchanges into rows on a thread of its own, so that no reply waits for it."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agentmem.errors import DataError
from agentmem.gateway.exchange import Counter, Exchange, call_row
from agentmem.gateway.options import GatewayOptions
from agentmem.gateway.replay import NOT_RECORDED
from agentmem.gateway.scopes import ScopeBook
from agentmem.records import Failure, Row

_COUNTED_TEXTS = 256
"""Texts whose token count is remembered: system prompts come again and again."""


class Recorder:
    """Books calls in the order in which they ended.

    A failing sink, and a request that a replay does not know, is raised at the next check.
    """

    def __init__(
        self, book: ScopeBook, sink: Callable[[Row], None], options: GatewayOptions
    ) -> None:
        self._book, self._sink = book, sink
        count = options.token_counter
        remembered = functools.lru_cache(_COUNTED_TEXTS)(count) if count else None
        self._counter = Counter(remembered, options.tokenizer_name if count else None)
        self._capture_dir, self._recording = options.capture_dir, options.record
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="gateway-recorder")
        self._failure: BaseException | None = None

    def put(self, ex: Exchange) -> None:
        """Book a finished exchange soon; it counts as in flight until that is done."""
        self._pool.submit(self._record, ex).add_done_callback(self._note_failure)

    def check(self) -> None:
        """Raise what went wrong while recording, if anything did."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Return once everything that was put is booked."""
        self._pool.shutdown(wait=True)
        self.check()

    def _record(self, ex: Exchange) -> None:
        try:
            call = call_row(ex, self._counter)
            self._sink(call)
            self._book.book(ex.arrival.state, call)
            if self._recording is not None:
                self._recording.append(ex)
            if self._capture_dir is not None:
                append_capture(self._capture_dir, ex)
            if ex.missed is not None:
                self._sink(_not_recorded(ex, ex.missed))
                self._failure = self._failure or DataError(ex.missed)
        finally:
            self._book.leave(ex.arrival)

    def _note_failure(self, done: Future[None]) -> None:
        self._failure = self._failure or done.exception()


def _not_recorded(ex: Exchange, message: str) -> Failure:
    """Off the recorded path no later reply means anything: the run is to end here."""
    scope, unit = ex.arrival.state.scope, ex.arrival.slot.unit
    at_s = ex.start_s if ex.end_s is None else ex.end_s
    return Failure(
        scope.scope, scope.system, scope.history, "replay", unit, NOT_RECORDED, message, None, at_s,
        ex.arrival.epoch,
    )  # fmt: skip


def append_capture(folder: Path, ex: Exchange) -> None:
    """Add one line with both bodies to the scope's capture file."""
    folder.mkdir(parents=True, exist_ok=True)
    line = {
        "call_id": ex.call_id,
        "endpoint": ex.asked.endpoint,
        "sent": _readable(ex.asked.raw),
        "forwarded": _readable(ex.out.body),
        "status": ex.status,
        "reply": _readable(b"".join(ex.kept)),
    }
    path = folder / f"{quote(ex.arrival.state.scope.scope, safe='._-')}.jsonl"
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _readable(body: bytes) -> Any:
    """JSON where it is JSON, else text."""
    text = body.decode("utf-8", errors="replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
