"""Embedding batches are cut, classed and take turns, whatever one call carries."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import torch

from agentmem.engine import embed
from agentmem.engine.core import EngineCore
from agentmem.engine.embed import BATCH_TOKENS, Embedder
from agentmem.engine.errors import EmbeddingStoppedError
from agentmem.engine.turns import Turns
from tests.engine.core.drive import run
from tests.engine.server.fakes import ByteTokenizer, FakeCore
from tests.engine.server.real import toy

PATH = "/v1/embeddings"
TEXTS = [f"text {i} " + "x" * (i * 7 % 60) for i in range(2300)]


class SlowBert:
    """Pools to something that every token and its place decide; says what it was given."""

    width, window = 8, 128

    def __init__(self, pause_s: float = 0.0) -> None:
        self.shapes: list[tuple[int, int]] = []
        self.pause_s = pause_s
        self.inside = 0

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        self.inside += 1
        assert self.inside == 1, "two batches at once"
        self.shapes.append(tuple(tokens.shape))
        time.sleep(self.pause_s)
        place = torch.arange(1, tokens.shape[1] + 1)
        waves = torch.arange(1, self.width + 1, dtype=torch.float32) / 40
        self.inside -= 1
        return torch.cos((tokens * place)[..., None] * waves)


def embedder(pause_s: float = 0.0) -> Embedder:
    bert = SlowBert(pause_s)
    return Embedder(bert, ByteTokenizer(), name="slow", window=128, weights="", mean=True)


def test_batches_are_as_large_as_their_class_allows_and_change_nothing():
    torch.set_num_threads(1)
    one = embedder()
    found = {}
    for kind, most in BATCH_TOKENS.items():
        one._model.shapes.clear()
        found[kind] = one.embed(TEXTS, traffic_class=kind)
        padded = [rows * longest for rows, longest in one._model.shapes]
        assert max(padded) <= most
        assert sum(rows for rows, _ in one._model.shapes) == len(TEXTS)
    assert np.abs(found["interactive"] - found["background"]).max() < 1e-6
    for at in (0, 1, 1000, 2299):
        assert np.abs(one.embed([TEXTS[at]])[0] - found["background"][at]).max() < 1e-6


def test_an_interactive_turn_waits_for_one_small_batch_at_most():
    one = embedder(0.002)
    one.turns = turns = Turns()
    background = threading.Thread(
        target=one.embed, args=(TEXTS,), kwargs={"traffic_class": "background"}
    )
    background.start()
    began: list[int] = []
    while background.is_alive() and len(began) < 20:
        before = len(one._model.shapes)
        with turns.turn("interactive"):
            began.append(len(one._model.shapes) - before)
        time.sleep(0.003)
    background.join()
    assert len(began) == 20, "the background call was meant to last"
    # At most the one that was about to begin; a thread that sleeps before it asks may see more.
    assert sum(count > 1 for count in began) <= 2, began


def test_a_whole_interactive_request_is_delayed_by_one_batch_at_most(tmp_path):
    torch.set_num_threads(1)
    core = EngineCore.load(toy(tmp_path), mode="fp32", threads=1, drafts=False)
    one = embedder(0.01)
    one.share(core)
    try:
        background = threading.Thread(
            target=one.embed, args=(TEXTS,), kwargs={"traffic_class": "background"}
        )
        background.start()
        while not one._model.shapes:
            time.sleep(0.001)
        before = len(one._model.shapes)
        answer = run(core, [97] * 40, max_tokens=60)
        during = len(one._model.shapes) - before
        assert background.is_alive(), "it was meant to last"
        background.join()
        # One may begin between the count and the request's arrival, another just at its end.
        assert during <= 2, f"{during} batches came between {len(answer.tokens)} tokens"
    finally:
        core.close()


def test_background_batches_are_late_and_not_lost(monkeypatch):
    monkeypatch.setattr(embed, "PATIENCE_S", 0.02)
    one = embedder()
    one.ahead = lambda: True
    assert one.embed(TEXTS[:40], traffic_class="background").shape == (40, 8)


def test_over_http_an_interactive_call_overtakes(start):
    server = start(FakeCore(), embedder(0.005))
    server.embedder.turns = server.core.turns
    ended = []

    def ask(name, texts, kind):
        reply = server.post(PATH, {"input": texts}, {"X-Agentmem-Traffic": kind})
        ended.append(name)
        replies[name] = reply

    replies = {}
    slow = threading.Thread(target=ask, args=("slow", TEXTS, "background"))
    slow.start()
    while not server.embedder._model.shapes:
        time.sleep(0.005)
    for number in range(3):
        ask(f"quick {number}", ["one", "two"], "interactive")
    slow.join()
    assert ended[-1] == "slow"
    assert all(reply.status == 200 for reply in replies.values())
    told = replies["slow"].body["usage"]["agentmem"]
    assert told["traffic_class"] == "background"
    assert told["prefill_s"] > 0.005 * 60, "the time of its own batches"
    assert replies["quick 0"].body["usage"]["agentmem"]["queue_s"] < told["prefill_s"] / 2
    vectors = np.array([row["embedding"] for row in replies["slow"].body["data"]])
    assert np.abs(vectors[:5] - server.embedder.embed(TEXTS[:5])).max() < 1e-6


def test_a_call_that_is_abandoned_stops_between_batches():
    one = embedder(0.001)
    ids = one.encode(TEXTS)
    with pytest.raises(EmbeddingStoppedError):
        one.compute(ids, stopped=lambda: len(one._model.shapes) >= 3)
    assert len(one._model.shapes) == 3
