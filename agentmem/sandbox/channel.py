"""JSON lines over two pipe ends, with a deadline on every message."""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Callable, Mapping
from typing import Any

MAX_LINE_BYTES = 512 * 2**20
_PIECE_BYTES = 2**18
_LOOK_S = 1.0


class ChannelClosedError(Exception):
    """The other end is gone."""


class ChannelFaultError(Exception):
    """What came is not a JSON object on one line."""


class Channel:
    """`alive` is asked once a second, since a grandchild may hold the other end open."""

    def __init__(self, read_fd: int, write_fd: int, alive: Callable[[], bool]) -> None:
        self._read_fd, self._write_fd, self._alive = read_fd, write_fd, alive
        self._buffer = bytearray()
        for fd in (read_fd, write_fd):
            os.set_blocking(fd, False)

    def send(self, message: Mapping[str, Any], deadline_s: float) -> None:
        """Raises TimeoutError past the deadline (monotonic seconds), ChannelClosedError."""
        data = memoryview(json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n")
        while data:
            self._wait(self._write_fd, select.POLLOUT, deadline_s)
            try:
                data = data[os.write(self._write_fd, data[:_PIECE_BYTES]) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise ChannelClosedError(str(error)) from None

    def receive(self, deadline_s: float) -> dict[str, Any]:
        """The next message; raises TimeoutError, ChannelClosedError or ChannelFaultError."""
        seen = 0
        while (end := self._buffer.find(b"\n", seen)) < 0:
            seen = len(self._buffer)
            if seen > MAX_LINE_BYTES:
                raise ChannelFaultError(f"a line longer than {MAX_LINE_BYTES} bytes")
            self._wait(self._read_fd, select.POLLIN, deadline_s)
            try:
                piece = os.read(self._read_fd, _PIECE_BYTES)
            except BlockingIOError:
                continue
            if not piece:
                raise ChannelClosedError("end of file")
            self._buffer += piece
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            message = json.loads(line)
        except ValueError:
            raise ChannelFaultError(f"not JSON: {line[:80]!r}") from None
        if not isinstance(message, dict):
            raise ChannelFaultError(f"not an object: {line[:80]!r}")
        return message

    def close(self) -> None:
        for fd in (self._read_fd, self._write_fd):
            os.close(fd)

    def _wait(self, fd: int, event: int, deadline_s: float) -> None:
        poll = select.poll()
        poll.register(fd, event)
        while True:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            if poll.poll(max(1, min(left_s, _LOOK_S) * 1000)):
                return
            if not self._alive() and not poll.poll(0):
                raise ChannelClosedError("the process ended")
