"""POST /v1/embeddings."""

from __future__ import annotations

import base64
import threading
import time

import jsonschema
import numpy as np
import pytest

from tests.engine.server.fakes import FakeCore, FakeEmbedder
from tests.engine.server.test_chat import SCHEMA

PATH = "/v1/embeddings"


def test_one_text_many_texts_and_tokens(start):
    server = start(None, FakeEmbedder())
    for given, texts in (
        ("ab", ["ab"]),
        (["ab", "c"], ["ab", "c"]),
        ([97, 98], ["ab"]),
        ([[97], [98, 99]], ["a", "bc"]),
    ):
        reply = server.post(PATH, {"model": "fake-embed", "input": given})
        assert reply.status == 200
        assert server.embedder.batches[-1] == texts
        vectors = np.array([row["embedding"] for row in reply.body["data"]])
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
        told = reply.body["usage"]["agentmem"]
        jsonschema.validate(told, SCHEMA)
        assert told["inputs"] == len(texts)
        assert reply.body["usage"]["prompt_tokens"] == sum(1 + len(t) for t in texts)


def test_base64_is_the_same_vector(start):
    server = start(None, FakeEmbedder())
    plain = server.post(PATH, {"input": "abc"}).body["data"][0]["embedding"]
    coded = server.post(PATH, {"input": "abc", "encoding_format": "base64"}).body["data"][0]
    assert np.frombuffer(base64.b64decode(coded["embedding"]), "<f4").tolist() == plain


def test_the_real_client_embeds(start):
    client = start(None, FakeEmbedder()).client()
    reply = client.embeddings.create(model="fake-embed", input=["abc", "d"], dimensions=4)
    assert [len(row.embedding) for row in reply.data] == [4, 4]
    assert reply.usage.prompt_tokens == 4 + 2


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": ""}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": [999]}, "input"),
        ({"input": "a", "dimensions": 3}, "dimensions"),
        ({"input": "a", "dimensions": "4"}, "dimensions"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": ["a"] * 8193}, "input"),
    ],
)
def test_refusals(start, body, param):
    reply = start(None, FakeEmbedder()).post(PATH, body)
    assert (reply.status, reply.body["error"]["param"]) == (400, param)


def test_past_the_window_is_cut_and_said_or_refused(start):
    long = "x" * 20
    told = start(None, FakeEmbedder()).post(PATH, {"input": [long, "y"]}).body["usage"]["agentmem"]
    assert told["truncated_inputs"] == 1
    assert told["uncached_tokens"] == 16 + 2, "what was computed, not what was sent"
    strict = start(None, FakeEmbedder(), truncate=False)
    reply = strict.post(PATH, {"input": [long, "y"]})
    assert (reply.status, reply.body["error"]["code"]) == (400, "context_length_exceeded")
    assert strict.get("/health").body["in_flight"] == 0


def test_embedding_does_not_hold_up_the_loop(start):
    server = start(FakeCore(), FakeEmbedder(delay_s=0.5))
    waiting = threading.Thread(target=lambda: server.post(PATH, {"input": "a"}))
    waiting.start()
    time.sleep(0.1)
    begun = time.monotonic()
    assert server.get("/health").body["in_flight"] == 1
    assert time.monotonic() - begun < 0.3
    second = server.post(PATH, {"input": "b"}).body["usage"]["agentmem"]
    assert second["queue_s"] > 0.05, "it waited for the first"
    waiting.join()
    health = server.get("/health").body
    assert (health["embed_requests"], health["embed_texts"], health["in_flight"]) == (2, 2, 0)


def test_a_server_of_one_kind_says_what_it_lacks(start):
    embed_only, chat_only = start(None, FakeEmbedder()), start(FakeCore(), None)
    chat = embed_only.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
    embed = chat_only.post(PATH, {"input": "a"})
    for reply in (chat, embed):
        assert (reply.status, reply.body["error"]["code"]) == (404, "model_not_found")
    assert [m["kind"] for m in embed_only.get("/v1/models").body["data"]] == ["embedding"]
    assert [m["kind"] for m in chat_only.get("/v1/models").body["data"]] == ["chat"]
