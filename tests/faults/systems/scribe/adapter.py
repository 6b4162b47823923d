"""A small memory system that makes every kind of model call, in the plainest way: no retries."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agentmem.memory import (
    Endpoints,
    Entry,
    Limits,
    MemorySystem,
    RecordFile,
    Retrieved,
    Stored,
    Unit,
)


class Scribe(MemorySystem):
    """Extract (streamed), decide, embed, append; found again by the dot product."""

    def open(self, dir: str, endpoints: Endpoints, limits: Limits) -> None:
        self.dir = dir
        self._endpoints, self._timeout_s = endpoints, limits.request_timeout_s
        self._file = RecordFile(Path(dir, "notes.jsonl"))
        self._notes = list(self._file.read())

    def construct(self, unit: Unit) -> Stored:
        said = "".join(self._stream(f"Write the facts down.\n{unit.text}"))
        if not said.strip():
            return Stored(lost=1, note="the model extracted nothing")
        kept = self._chat(f"Keep this note?\n{said}")
        note = {
            "user": unit.user,
            "unit": unit.unit_id,
            "text": f"{unit.text}\n{said} {kept}",
            "vector": self._embed(unit.text),
        }
        self._file.append(note)
        self._notes.append(note)
        return Stored(added=1, store_version=self._file.version, visible_at=None)

    def flush(self) -> None:
        self._file.sync()

    def retrieve(self, user: str, question: str, k: int) -> Retrieved:
        sought = self._embed(question)
        mine = [(_dot(n["vector"], sought), n["text"]) for n in self._notes if n["user"] == user]
        best = sorted(mine, reverse=True)[:k]
        return Retrieved(tuple(Entry(text, score) for score, text in best), self._file.version)

    def close(self) -> None:
        self._file.close()

    def _stream(self, text: str) -> Iterator[str]:
        ended = False
        for line in self._post("chat/completions", _asking(self._endpoints.chat_model, text, True)):
            data = line.removeprefix(b"data: ").strip()
            if data in (b"", b"[DONE]"):
                continue
            choice = json.loads(data)["choices"][0]
            ended = ended or choice["finish_reason"] is not None
            yield choice["delta"].get("content") or ""
        if not ended:
            raise RuntimeError("the stream broke off")

    def _chat(self, text: str) -> str:
        body = _asking(self._endpoints.chat_model, text, False)
        reply = json.loads(b"".join(self._post("chat/completions", body)))
        return str(reply["choices"][0]["message"]["content"])

    def _embed(self, text: str) -> list[float]:
        body = {"model": self._endpoints.embed_model, "input": [text]}
        reply = json.loads(b"".join(self._post("embeddings", body)))
        return list(reply["data"][0]["embedding"])

    def _post(self, tail: str, body: dict[str, Any]) -> Iterator[bytes]:
        url = urlsplit(self._endpoints.chat_url)
        connection = http.client.HTTPConnection(
            url.hostname or "", url.port, timeout=self._timeout_s
        )
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", f"{url.path}/{tail}", json.dumps(body).encode(), headers)
            reply = connection.getresponse()
            if reply.status != 200:
                raise RuntimeError(f"HTTP {reply.status}: {reply.read(200)!r}")
            yield from reply
        finally:
            connection.close()


def _asking(model: str, text: str, stream: bool) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": model, "messages": messages, "stream": stream, "max_tokens": 64}


def _dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))
