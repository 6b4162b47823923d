"""A model server that answers from a script: what a memory system does with given replies."""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Seen:
    """One request, as it arrived."""

    path: str
    body: dict[str, Any]
    raw: bytes
    headers: dict[str, str]

    @property
    def embeds(self) -> bool:
        return self.path.endswith("/embeddings")

    @property
    def texts(self) -> list[str]:
        """What the models read: message contents, or the texts to embed."""
        if self.embeds:
            return list(self.body["input"])
        return [message["content"] for message in self.body["messages"]]


Reply = str | int | dict[str, Any] | tuple[str, str] | Callable[[Seen], Any]
"""Text, HTTP error status, object to send as JSON, (text, finish reason), or what makes one."""


@dataclass
class ScriptedModels:
    """OpenAI-compatible chat and embeddings on a port of the system's choice."""

    dims: int = 32
    chat: list[Reply] = field(default_factory=list)
    """Replies still to give."""
    otherwise: Reply = 418
    """Reply to every chat request beyond them."""
    embed_faults: list[bool] = field(default_factory=list)
    """Whether each of the next embedding requests fails with status 500."""
    seen: list[Seen] = field(default_factory=list)

    def __enter__(self) -> ScriptedModels:
        models = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1

            def log_message(self, *args: object) -> None:
                pass

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                seen = Seen(self.path, json.loads(raw), raw, headers)
                models.seen.append(seen)
                status, answer = models._answer(seen)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def script(self, *chat: Reply, embed_faults: tuple[bool, ...] = ()) -> None:
        """Forget what was seen and set the next replies."""
        self.seen.clear()
        self.chat[:] = chat
        self.embed_faults[:] = embed_faults

    def trace(self) -> str:
        """Kinds of the requests seen, in order: c for chat, e for an embedding."""
        return "".join("e" if seen.embeds else "c" for seen in self.seen)

    def _answer(self, seen: Seen) -> tuple[int, dict[str, Any]]:
        if seen.embeds:
            if self.embed_faults and self.embed_faults.pop(0):
                return 500, {"error": {"message": "scripted fault"}}
            return 200, self._embedded(seen.texts)
        reply = self.chat.pop(0) if self.chat else self.otherwise
        reply = reply(seen) if callable(reply) else reply
        if isinstance(reply, int):
            return reply, {"error": {"message": "scripted fault"}}
        text, finish = reply if isinstance(reply, tuple) else (reply, "stop")
        message = {
            "role": "assistant",
            "content": text if isinstance(text, str) else json.dumps(text),
        }
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return 200, {"object": "chat.completion", "choices": [choice], "usage": _usage()}

    def _embedded(self, texts: list[str]) -> dict[str, Any]:
        data = [
            {"object": "embedding", "index": i, "embedding": vector(text, self.dims)}
            for i, text in enumerate(texts)
        ]
        return {"object": "list", "data": data, "usage": _usage()}


def vector(text: str, dims: int) -> list[float]:
    """Unit vector of a text's words: texts that share words lie close."""
    values = [0.0] * dims
    for word in text.lower().replace(".", "").split() or [""]:
        values[int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big") % dims] += 1.0
    norm = math.sqrt(sum(v * v for v in values))
    return [v / norm for v in values]


def _usage() -> dict[str, int]:
    return {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
