"""Loopback ports only: an audit hook that refuses every other connection of this process.

Sockets opened in C or Rust raise no audit event; they are out of reach here.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

_LOOPBACK = ("127.0.0.1", "::1", "localhost", "::ffff:127.0.0.1")
_KEPT = 20


class NetworkGuard:
    """Counts what it refuses; `ports` may grow while the worker lives."""

    def __init__(self, ports: tuple[int, ...]) -> None:
        self.ports = set(ports)
        self._blocked: list[str] = []
        self._count = 0

    def install(self) -> None:
        sys.addaudithook(self._hook)

    def take(self) -> tuple[int, list[str]]:
        """Refused attempts since the last call: how many, and the first few targets."""
        taken = self._count, self._blocked
        self._count, self._blocked = 0, []
        return taken

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            sock, address = args[0], args[-1]
            if address is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
                self._check(str(address[0]), address[1])
        elif event == "socket.bind" and args[0].family in (socket.AF_INET, socket.AF_INET6):
            self._check(str(args[1][0]), None)
        elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
            self._check_name(args[0])

    def _check_name(self, host: Any) -> None:
        name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
        if name is not None:
            self._check(str(name), None)

    def _check(self, host: str, port: int | None) -> None:
        if host.lower() in _LOOPBACK and (port is None or port in self.ports):
            return
        self._count += 1
        target = host if port is None else f"{host}:{port}"
        if len(self._blocked) < _KEPT:
            self._blocked.append(target)
        raise PermissionError(f"network blocked: {target} is not a declared loopback port")
