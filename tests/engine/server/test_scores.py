"""Log-probabilities, best_of and beams as clients get them."""

from __future__ import annotations

import math

import pytest

from agentmem.engine.api.beams import BeamSearch
from agentmem.engine.request import Request, Sampling, TokenScores
from tests.engine.server.fakes import EOS, FakeCore

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "x"}]


def hi(request):
    return "hi"


def test_chat_log_probabilities(start):
    server = start(FakeCore(hi))
    body = {"messages": MESSAGES, "logprobs": True, "top_logprobs": 2}
    choice = server.post(CHAT, body).body["choices"][0]
    first, second = choice["logprobs"]["content"]
    assert (first["token"], first["logprob"], first["bytes"]) == ("h", -0.25, [104])
    assert [one["token"] for one in first["top_logprobs"]] == ["h", "i"]
    assert (second["token"], second["logprob"]) == ("i", -1.5)
    bare = server.post(CHAT, {"messages": MESSAGES, "logprobs": True}).body["choices"][0]
    assert bare["logprobs"]["content"][0]["top_logprobs"] == []
    assert server.post(CHAT, {"messages": MESSAGES}).body["choices"][0]["logprobs"] is None


def test_streamed_log_probabilities_stand_with_their_text(start):
    server = start(FakeCore(hi))
    events, _ = server.stream(CHAT, {"messages": MESSAGES, "logprobs": True})
    told = [
        (choice["delta"]["content"], [one["token"] for one in choice["logprobs"]["content"]])
        for event in events
        for choice in event["choices"]
        if choice["logprobs"]
    ]
    assert told == [("h", ["h"]), ("i", ["i"])]


def test_completion_log_probabilities(start):
    server = start(FakeCore(hi))
    told = server.post(COMPLETIONS, {"prompt": "x", "logprobs": 1}).body["choices"][0]["logprobs"]
    assert told["tokens"] == ["h", "i"]
    assert told["token_logprobs"] == [-0.25, -1.5]
    assert told["top_logprobs"] == [{"h": -0.25}, {"h": -0.25, "i": -1.5}]
    assert told["text_offset"] == [0, 1]
    none = server.post(COMPLETIONS, {"prompt": "x", "logprobs": 0}).body["choices"][0]["logprobs"]
    assert none["top_logprobs"] == [{"h": -0.25}, {"i": -1.5}]


def test_the_real_client_reads_them(start):
    client = start(FakeCore(hi)).client()
    reply = client.chat.completions.create(
        model="fake", messages=MESSAGES, logprobs=True, top_logprobs=3
    )
    assert reply.choices[0].logprobs.content[1].token == "i"
    text = client.completions.create(model="fake", prompt="x", logprobs=2)
    assert text.choices[0].logprobs.token_logprobs == [-0.25, -1.5]


def test_an_engine_without_scores_says_so(start):
    class Mute(FakeCore):
        def _delta(self, request, before, token):
            return super()._delta(Request(request.request_id, request.prompt), before, token)

    server = start(Mute())
    for fields in ({"logprobs": True}, {"best_of": 2}, {"use_beam_search": True}):
        reply = server.post(CHAT, {"messages": MESSAGES, **fields})
        assert (reply.status, reply.body["error"]["code"]) == (500, "no_logprobs"), fields
    assert server.get("/health").body["in_flight"] == 0


def test_best_of_gives_the_likeliest(start):
    answers = {5: "hhh", 6: "iii", 7: "hhi"}
    server = start(FakeCore(lambda request: answers[request.sampling.seed]))
    body = {"messages": MESSAGES, "n": 2, "best_of": 3, "seed": 5}
    reply = server.post(CHAT, body).body
    assert [c["message"]["content"] for c in reply["choices"]] == ["hhh", "hhi"]
    assert [c["index"] for c in reply["choices"]] == [0, 1]
    assert reply["choices"][0]["logprobs"] is None, "they were not asked for"
    assert reply["usage"]["completion_tokens"] == 9, "all of them were computed"


def chain(steps: dict[str, dict[str, float]]):
    """Log-probabilities from a table of prefixes (the text after the prompt "|")."""

    def likely(prefix):
        text = bytes(t for t in prefix if t < 256).decode().rpartition("|")[2]
        row = steps.get(text, {"$": 1.0})
        return [(EOS if s == "$" else ord(s), math.log(p)) for s, p in row.items()]

    return likely


GREEDY_TRAP = chain(
    {
        "": {"a": 0.6, "b": 0.4},
        "a": {"c": 0.5, "d": 0.5},
        "b": {"e": 0.95, "f": 0.05},
    }
)


def test_beams_find_what_greedy_misses(start):
    server = start(FakeCore(likely=GREEDY_TRAP))
    body = {"prompt": "|", "use_beam_search": True, "n": 2, "max_tokens": 5, "logprobs": 0}
    reply = server.post(COMPLETIONS, body).body
    assert [c["text"] for c in reply["choices"]] == ["be", "ac"]
    best = reply["choices"][0]
    assert best["cumulative_logprob"] == pytest.approx(math.log(0.4 * 0.95))
    assert best["finish_reason"] == "stop"
    assert best["logprobs"]["tokens"] == ["b", "e"], "the end marker is not told"
    alone = server.post(COMPLETIONS, {**body, "n": 1}).body
    assert [c["text"] for c in alone["choices"]] == ["ac"], "one beam is greedy"
    wide = server.post(COMPLETIONS, {**body, "n": 1, "best_of": 2}).body
    assert [c["text"] for c in wide["choices"]] == ["be"]


def test_beams_of_several_prompts_and_the_length_penalty(start):
    table = {"": {"$": 0.5, "a": 0.5}, "a": {"b": 0.8, "$": 0.2}, "ab": {"$": 1.0}}
    server = start(FakeCore(likely=chain(table)))
    body = {"prompt": ["|", "x|"], "use_beam_search": True, "best_of": 2, "max_tokens": 4}
    short = server.post(COMPLETIONS, {**body, "length_penalty": 0.0}).body["choices"]
    assert [c["text"] for c in short] == ["", ""]
    long = server.post(COMPLETIONS, {**body, "length_penalty": 2.0}).body["choices"]
    assert [c["text"] for c in long] == ["ab", "ab"]


def test_a_stop_string_ends_a_beam_before_it(start):
    server = start(FakeCore(likely=chain({"": {"a": 1.0}, "a": {"#": 1.0}, "a#": {"z": 1.0}})))
    body = {"prompt": "|", "use_beam_search": True, "max_tokens": 9, "stop": "#"}
    (choice,) = server.post(COMPLETIONS, body).body["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("a", "stop")


def test_beams_hold_to_no_grammar(start):
    server = start(FakeCore())
    body = {"messages": MESSAGES, "use_beam_search": True}
    for fields in ({"response_format": {"type": "json_object"}}, {"forced_text": "x"}):
        assert server.post(CHAT, {**body, **fields}).status == 400


@pytest.mark.parametrize("penalty", [-1.0, 0.0, 0.7, 1.0, 2.0])
def test_stopping_early_changes_nothing(penalty):
    """The search against all continuations, on random tables where a width covers all."""
    import itertools
    import random

    pick = random.Random(int(penalty * 10))
    for _ in range(30):
        table = {}
        for length in range(3):
            for prefix in itertools.product((0, 1), repeat=length):
                weights = [pick.random() + 0.01 for _ in range(3)]
                table[prefix] = [math.log(w / sum(weights)) for w in weights]
        whole = {}
        for length in range(1, 4):
            for tokens in itertools.product((0, 1, 2), repeat=length):
                ends = tokens[-1] == 2
                if 2 in tokens[:-1] or (length < 3 and not ends):
                    continue
                score = sum(table[tokens[:at]][token] for at, token in enumerate(tokens))
                whole[tokens] = score / length**penalty
        search = BeamSearch(Request("r", (9,), Sampling()), 20, 3, eos=(2,), length_penalty=penalty)
        while not search.done:
            rows = [table[r.prompt[1:]] for r in search.requests()]
            search.take([TokenScores(0.0, tuple(enumerate(row))) for row in rows])
        best = search.best(3)
        expected = sorted(whole, key=lambda tokens: -whole[tokens])[:3]
        assert [beam.tokens for beam in best] == expected
