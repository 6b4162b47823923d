"""A minimal embeddings endpoint: hashed bags of words, so that likeness means something."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

DIMS = 64
LONGEST_CHARS = 2000


def vector(text: str) -> list[float]:
    total = np.full(DIMS, 1e-3)
    for word in re.findall(r"\w+", text.lower()):
        seed = int.from_bytes(hashlib.sha256(word.encode("utf-8", "replace")).digest()[:4], "big")
        total += np.random.default_rng(seed).normal(size=DIMS)
    return [float(x) for x in total]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server: Stub = self.server  # type: ignore[assignment]
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        server.batches.append(texts)
        server.operations.append(self.path.removeprefix("/s/scope/").split("/")[0])
        if not re.fullmatch(r"/s/scope/((construct|retrieve)/)?v1/embeddings", self.path):
            self._send(404, {"error": {"message": self.path}})
        elif any(len(text) > LONGEST_CHARS for text in texts):
            self._send(400, {"error": {"message": "input is too long"}})
        elif server.broken:
            self._send(500, {"error": {"message": "broken on purpose"}})
        else:
            data = [{"index": i, "embedding": vector(t)} for i, t in enumerate(texts)]
            # out of order on purpose: the index says which is which
            self._send(200, {"object": "list", "data": data[::-1], "model": body["model"]})

    def _send(self, status: int, reply: object) -> None:
        raw = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Stub(ThreadingHTTPServer):
    """`batches` holds the texts of each request in order of arrival, `operations` their verbs."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.batches: list[list[str]] = []
        self.operations: list[str] = []
        self.broken = False
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/s/scope/v1"

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
