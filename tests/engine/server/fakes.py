"""A deterministic stand-in for the engine core: bytes as tokens, scripted answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

import numpy as np

from agentmem.engine.errors import EmbeddingStoppedError, RequestError
from agentmem.engine.kv.registry import SessionStats
from agentmem.engine.request import Delta, Request, RequestRecord, TokenScores
from agentmem.engine.stats import EngineStats
from agentmem.engine.turns import Turns

BOS, EOS, TURN, TURN_END = 256, 257, 258, 259
CONTROL = {BOS: "<bos>", EOS: "<eos>", TURN: "<turn>", TURN_END: "</turn>"}
VOCAB = 262
"""Two ids wider than the tokenizer, as padded models are."""

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<turn>{{ m.role }}\n{{ m.content }}</turn>"
    "{% endfor %}{% if add_generation_prompt %}<turn>assistant\n{% endif %}"
)


LIKELY = [(104, -0.25), (105, -1.5), (EOS, -3.0)]
"""Log-probabilities of "h", "i" and the end, after whatever."""


class ByteTokenizer:
    name = "bytes"
    bos_id = BOS
    eos_ids = (EOS, TURN_END)
    vocab_size = 260
    control_ids = frozenset(CONTROL)

    def __init__(self, chat_template: str | None = TEMPLATE) -> None:
        self.chat_template = chat_template
        self.vocabulary = [bytes([i]) for i in range(256)] + [t.encode() for t in CONTROL.values()]

    def encode(self, text: str, special: bool = True) -> list[int]:
        ids = list(text.encode())
        if not special:
            return ids
        for token, word in CONTROL.items():
            ids = _replace(ids, list(word.encode()), token)
        return ids if ids[:1] == [BOS] else [BOS, *ids]

    def decode(self, ids: Iterable[int], skip_control: bool = True) -> str:
        kept = [self.vocabulary[i] for i in ids if not (skip_control and i in CONTROL)]
        return b"".join(kept).decode("utf-8", "replace")

    def count(self, text: str) -> int:
        return len(text.encode())

    def token_text(self, token: int) -> str:
        return self.vocabulary[token].decode()


class FakeCore:
    """Runs each request in a thread of its own. `answer(request)` gives the text it would say."""

    name, arch, mode, backend, threads, weights = "fake", "bytes", "fp32", "torch", 1, "0" * 64
    vocab_size = VOCAB
    kv, notes = "fp32", ()

    def __init__(
        self,
        answer: Callable[[Request], str] = lambda request: "hello",
        *,
        window: int = 4096,
        template: str | None = TEMPLATE,
        step_s: float = 0.0,
        likely: Callable[[tuple[int, ...]], list[tuple[int, float]]] = lambda prefix: LIKELY,
    ) -> None:
        self.likely = likely
        self.answer, self.window, self.step_s = answer, window, step_s
        self.tokenizer = ByteTokenizer(template)
        self.requests: list[Request] = []
        self.records: dict[str, RequestRecord] = {}
        self.steps = 0
        self.turns = Turns()
        self.known: dict[tuple[str | None, str], SessionStats] = {}
        self._cancelled: dict[str, threading.Event] = {}

    def submit(self, request: Request, on_delta, on_done) -> None:
        if len(request.prompt) >= self.window:
            raise RequestError("context_length_exceeded", "prompt past the window")
        self.requests.append(request)
        self._cancelled[request.request_id] = threading.Event()
        threading.Thread(target=self._run, args=(request, on_delta, on_done), daemon=True).start()

    def cancel(self, request_id: str) -> bool:
        known = self._cancelled.get(request_id)
        if known:
            known.set()
        return known is not None

    def stats(self) -> EngineStats:
        zero = {"interactive": 0, "background": 0}
        running = {**zero, "interactive": len(self.requests) - len(self.records)}
        return EngineStats(running, zero, zero, *[0] * 4, *[7] * 13, 0.5, 0, len(self.known))

    def sessions(self, tenant: str | None = None) -> list[SessionStats]:
        return [stats for (owner, _), stats in self.known.items() if owner == tenant]

    def session(self, session_id: str, tenant: str | None = None) -> SessionStats | None:
        return self.known.get((tenant, session_id))

    def drop_session(self, session_id: str, tenant: str | None = None) -> int:
        return self.known.pop((tenant, session_id)).bytes_unique

    def close(self) -> None:
        for event in self._cancelled.values():
            event.set()

    def _run(self, request: Request, on_delta, on_done) -> None:
        wanted = [*self.answer(request).encode(), EOS]
        limit = request.sampling.max_tokens or 1024
        if request.forced is not None:
            wanted, limit = [*request.forced, EOS], len(request.forced)
        out: list[int] = []
        reason = "length"
        while len(out) < limit:
            if self._cancelled[request.request_id].wait(self.step_s):
                reason = "abort"
                break
            self.steps += 1
            token = wanted[len(out)] if len(out) < len(wanted) else EOS
            if request.constraint is not None:
                token, stop = self._constrained(request, token, len(out))
                if stop:
                    if token not in self.tokenizer.eos_ids:
                        out.append(token)
                        on_delta(self._delta(request, [], token))
                    reason = "stop"
                    break
            elif token == EOS and not request.sampling.ignore_eos:
                reason = "stop"
                break
            out.append(token)
            text = self.tokenizer.decode(out)
            found = [s for s in request.sampling.stop if text.endswith(s)]
            if found:
                reason = "stop"
                break
            on_delta(self._delta(request, out[:-1], token))
        on_delta(Delta("", (), reason))
        record = RequestRecord(
            request.request_id, request.session_id, request.tenant, request.traffic_class,
            0.001, 0.002, 0.003, 0.004, len(request.prompt) - 1, 1, len(out),
            state_bytes=10, step_share_s=0.5, finish_reason=reason,
        )  # fmt: skip
        self.records[request.request_id] = record
        on_done(record)

    def _delta(self, request: Request, before: list[int], token: int) -> Delta:
        text = self.tokenizer.decode([token])
        if request.sampling.logprobs is None:
            return Delta(text, (token,))
        known = dict(self.likely(request.prompt + tuple(before)))
        top = sorted(known.items(), key=lambda pair: -pair[1])[: request.sampling.logprobs]
        return Delta(text, (token,), None, (TokenScores(known.get(token, -9.0), tuple(top)),))

    def _constrained(self, request: Request, token: int, step: int) -> tuple[int, bool]:
        mask = request.constraint.allowed()
        if mask is None:
            if token == EOS:
                return EOS, True
            request.constraint.advance(token)
            return token, False
        assert mask.shape == (VOCAB,)
        if not mask[token]:
            # Prefers to say something, and never what lies past the tokenizer.
            choices = np.nonzero(mask)[0]
            token = int(choices[(step * 7) % len(choices)])
        return token, request.constraint.advance(token)


class FakeEmbedder:
    name, dims, window, mode = "fake-embed", 4, 16, "fp32"
    backend, weights = "torch", "1" * 64

    def __init__(self, delay_s: float = 0.0) -> None:
        self.tokenizer = ByteTokenizer()
        self.delay_s = delay_s
        self.batches: list[list[str]] = []

    def encode(self, texts: list[str]) -> list[list[int]]:
        self.batches.append(texts)
        return [self.tokenizer.encode(text) for text in texts]

    def compute(self, ids, *, traffic_class="interactive", stopped=lambda: False):
        begun = time.monotonic()
        while time.monotonic() < begun + self.delay_s:
            if stopped():
                raise EmbeddingStoppedError
            time.sleep(0.01)
        rows = [[len(one), one[1], one[-1], 1.0] for one in ids]
        vectors = np.array(rows, np.float32)
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit, time.monotonic() - begun


def _replace(ids: list[int], word: list[int], token: int) -> list[int]:
    out: list[int] = []
    at = 0
    while at < len(ids):
        if ids[at : at + len(word)] == word:
            out.append(token)
            at += len(word)
        else:
            out.append(ids[at])
            at += 1
    return out
