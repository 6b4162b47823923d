"""Several verbs in flight over one channel: each waiting thread gets the reply to its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from agentmem.sandbox.channel import Channel


class Post:
    """Whoever waits first reads for all; a reply to another's request is laid by for it."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._sending = threading.Lock()
        self._state = threading.Condition()
        self._waiting: set[int] = set()
        self._arrived: dict[int, dict[str, Any]] = {}
        self._reading = False

    def send(self, message: Mapping[str, Any], deadline_s: float) -> None:
        """Raises what `Channel.send` raises. A message sent is a reply to `receive`."""
        with self._state:
            self._waiting.add(message["id"])
        with self._sending:
            self._channel.send(message, deadline_s)

    def receive(self, number: int, deadline_s: float) -> dict[str, Any]:
        """The reply with that id, or one that nobody waits for; raises what `Channel` raises."""
        try:
            while True:
                with self._state:
                    if number in self._arrived:
                        return self._arrived.pop(number)
                    if self._reading:
                        if not self._state.wait(max(0.0, deadline_s - time.monotonic())):
                            raise TimeoutError
                        continue
                    self._reading = True
                reply = self._read(deadline_s)
                to = reply.get("id")
                with self._state:
                    if to == number or to not in self._waiting:
                        return reply
                    self._arrived[to] = reply
        finally:
            with self._state:
                self._waiting.discard(number)

    def _read(self, deadline_s: float) -> dict[str, Any]:
        try:
            return self._channel.receive(deadline_s)
        finally:
            with self._state:
                self._reading = False
                self._state.notify_all()
