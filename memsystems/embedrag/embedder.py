"""A small client of an OpenAI-compatible embeddings endpoint."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

import numpy as np

from agentmem.memory import Endpoints

_SHORTEST_CHARS = 64


class EmbeddingError(RuntimeError):
    """The endpoint refused or answered nonsense."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"embeddings endpoint: HTTP {status}: {message}")
        self.status = status


class Embedder:
    """Unit-length float32 vectors, [n, dims]; no retries."""

    def __init__(self, endpoints: Endpoints, batch: int, timeout_s: float) -> None:
        self._endpoints, self._batch, self._timeout_s = endpoints, batch, timeout_s
        self._url = urlsplit(endpoints.embed_url)
        self.cut = 0
        """Texts too long for the model, embedded in halves."""

    def embed(self, texts: list[str]) -> np.ndarray:
        parts = [self._try(texts[i : i + self._batch]) for i in range(0, len(texts), self._batch)]
        vectors = np.concatenate(parts or [np.zeros((0, self._endpoints.embed_dims), np.float32)])
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.all(np.isfinite(norms)) or np.any(norms == 0):
            raise EmbeddingError(200, "a vector is zero or not finite")
        return np.ascontiguousarray(vectors / norms, np.float32)

    def _try(self, texts: list[str]) -> np.ndarray:
        """A refused batch is tried text by text, a refused text in two halves."""
        try:
            return self._post(texts)
        except EmbeddingError as error:
            if error.status not in (400, 413) or (
                len(texts) == 1 and len(texts[0]) <= _SHORTEST_CHARS
            ):
                raise
        if len(texts) > 1:
            return np.concatenate([self._try([text]) for text in texts])
        self.cut += 1
        middle = len(texts[0]) // 2
        halves = [self._try([half]) for half in (texts[0][:middle], texts[0][middle:])]
        return np.asarray(np.mean(halves, axis=0), np.float32)

    def _post(self, texts: list[str]) -> np.ndarray:
        body = {
            "model": self._endpoints.embed_model,
            "input": texts,
            "encoding_format": "float",
        }
        connection = http.client.HTTPConnection(
            self._url.hostname or "", self._url.port, timeout=self._timeout_s
        )
        try:
            connection.request(
                "POST",
                f"{self._url.path}/embeddings",
                json.dumps(body).encode("ascii"),
                {
                    "Content-Type": "application/json",
                    "Authorization": f"Bearer {self._endpoints.api_key}",
                },
            )
            response = connection.getresponse()
            raw = response.read()
        finally:
            connection.close()
        if response.status != 200:
            raise EmbeddingError(response.status, raw[:300].decode("utf-8", "replace"))
        return self._vectors(json.loads(raw), len(texts))

    def _vectors(self, reply: dict[str, list[dict[str, list[float]]]], count: int) -> np.ndarray:
        rows = sorted(reply["data"], key=lambda row: row["index"])
        vectors = np.array([row["embedding"] for row in rows], np.float32)
        if vectors.shape != (count, self._endpoints.embed_dims):
            raise EmbeddingError(
                200, f"{vectors.shape} instead of {(count, self._endpoints.embed_dims)}"
            )
        return vectors
