"""Two verbs at once: questions in a thread of their own, everything else in the main thread."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

QUESTIONS = ("retrieve", "answer")


class Answers(Protocol):
    """What answers a request."""

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]: ...


def serve_two(
    requests: Iterable[bytes], loop: Answers, send: Callable[[dict[str, Any]], None]
) -> None:
    """Answer requests until `close` or the end of input; replies come in the order of completion.

    One lane's requests are answered in order. `close` waits for a question in progress.
    """
    sending = threading.Lock()
    lanes: dict[bool, queue.SimpleQueue[dict[str, Any] | None]] = {
        asks: queue.SimpleQueue() for asks in (True, False)
    }

    def work(asks: bool) -> None:
        while (request := lanes[asks].get()) is not None:
            if request["verb"] == "close":
                lanes[True].put(None)
                questions.join()
            reply = loop.answer(request)
            with sending:
                send(reply)
            if request["verb"] == "close":
                return

    def receive() -> None:
        for line in requests:
            request = json.loads(line)
            lanes[request["verb"] in QUESTIONS].put(request)
        for lane in lanes.values():
            lane.put(None)

    questions = threading.Thread(target=work, args=(True,), name="questions", daemon=True)
    questions.start()
    threading.Thread(target=receive, name="requests", daemon=True).start()
    work(False)
