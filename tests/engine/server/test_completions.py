"""POST /v1/completions, /tokenize, /detokenize."""

from __future__ import annotations

import pytest

from tests.engine.server.fakes import BOS, FakeCore

PATH = "/v1/completions"


def echo(request) -> str:
    return "|" + bytes(t for t in request.prompt if t < 256).decode()


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("ab", ["|ab"]),
        (["ab", "c"], ["|ab", "|c"]),
        ([97, 98], ["|ab"]),
        ([[97], [98, 99]], ["|a", "|bc"]),
    ],
)
def test_every_form_of_prompt(start, prompt, texts):
    reply = start(FakeCore(echo)).post(PATH, {"prompt": prompt})
    assert [c["text"] for c in reply.body["choices"]] == texts
    assert [c["index"] for c in reply.body["choices"]] == list(range(len(texts)))
    assert reply.body["object"] == "text_completion"


def test_token_ids_are_taken_as_they_are(start):
    server = start(FakeCore())
    server.post(PATH, {"prompt": [97, 98]})
    server.post(PATH, {"prompt": "ab"})
    server.post(PATH, {"prompt": "ab", "add_special_tokens": False})
    assert [r.prompt for r in server.core.requests] == [(97, 98), (BOS, 97, 98), (97, 98)]


def test_choices_of_several_prompts_stand_prompt_by_prompt(start):
    reply = start(FakeCore(echo)).post(PATH, {"prompt": ["a", "b"], "n": 2})
    assert [c["text"] for c in reply.body["choices"]] == ["|a", "|a", "|b", "|b"]
    assert len(reply.body["usage"]["agentmem"]["choices"]) == 4


def test_stream(start):
    events, _ = start(FakeCore(echo)).stream(PATH, {"prompt": ["a", "bb"]})
    texts = ["", ""]
    for event in events:
        texts[event["choices"][0]["index"]] += event["choices"][0]["text"]
    assert texts == ["|a", "|bb"]


def test_the_real_client_completes(start):
    client = start(FakeCore(echo)).client()
    reply = client.completions.create(model="fake", prompt=["a", "b"], max_tokens=1)
    assert [c.text for c in reply.choices] == ["|", "|"]
    assert [c.finish_reason for c in reply.choices] == ["length", "length"]


@pytest.mark.parametrize(
    "prompt",
    [None, "", [], [""], [[]], ["a", 1], [1, "a"], [1.5], [True], {"a": 1}, [[1], []], [-1], [999]],
)  # fmt: skip
def test_other_prompts_are_refused(start, prompt):
    server = start(FakeCore())
    body = {"prompt": prompt, "add_special_tokens": False}
    reply = server.post(PATH, {k: v for k, v in body.items() if v is not None})
    assert (reply.status, reply.body["error"]["param"]) == (400, "prompt")
    assert server.core.requests == []


def test_one_bad_prompt_of_many_stops_the_rest(start):
    class Picky(FakeCore):
        def submit(self, request, on_delta, on_done):
            if 98 in request.prompt:
                from agentmem.engine.errors import RequestError

                raise RequestError("invalid_prompt", "no b")
            super().submit(request, on_delta, on_done)

    server = start(Picky(step_s=0.05))
    reply = server.post(PATH, {"prompt": ["a" * 50, "b"]})
    assert (reply.status, reply.body["error"]["code"]) == (400, "invalid_prompt")
    for _ in range(100):
        if server.get("/health").body["in_flight"] == 0:
            break
    assert server.core.records["cmpl-00000001-0"].finish_reason == "abort"


def test_tokenize_there_and_back(start):
    server = start(FakeCore(window=99))
    reply = server.post("/tokenize", {"prompt": "añ"})
    assert reply.body == {"count": 4, "max_model_len": 99, "tokens": [BOS, 97, 195, 177]}
    back = server.post("/detokenize", {"tokens": reply.body["tokens"]})
    assert back.body == {"prompt": "<bos>añ"}
    chat = {"messages": [{"role": "user", "content": "x"}]}
    counted = server.post("/tokenize", chat).body["count"]
    assert counted == server.post("/v1/chat/completions", chat).body["usage"]["prompt_tokens"]
    assert server.post("/detokenize", {"tokens": [1, "a"]}).status == 400
    assert server.post("/detokenize", {"tokens": [10**6]}).status == 400


def test_token_ids_are_told_where_they_are_asked_for(server):
    body = {"model": "fake", "prompt": "hello", "max_tokens": 4}
    plain = server.post("/v1/completions", body).body["choices"][0]
    assert "token_ids" not in plain
    whole = server.post("/v1/completions", body | {"return_token_ids": True}).body
    ids = whole["choices"][0]["token_ids"]
    assert len(ids) == whole["usage"]["completion_tokens"] > 0
    events, _ = server.stream("/v1/completions", body | {"return_token_ids": True})
    assert [t for e in events for c in e["choices"] for t in c["token_ids"]] == ids
