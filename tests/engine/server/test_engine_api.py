"""The engine as a Python object, on a tiny model: agentmem.engine.engine.Engine."""

from __future__ import annotations

import asyncio
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from agentmem.engine.engine import Engine, PromptChunk
from agentmem.engine.errors import RequestError
from agentmem.engine.sessions import IdentityError
from agentmem.errors import EngineError, UsageError
from tests.engine.server.real import toy

ROOT = Path(__file__).parents[3]
LONG = "the quick brown fox jumps over the lazy dog " * 3


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    torch.set_num_threads(1)
    folder = toy(tmp_path_factory.mktemp("toy"))
    with Engine.load(folder, mode="fp32", threads=1) as engine:
        yield engine


def test_text_tokens_and_messages(engine):
    ids = engine.core.tokenizer.encode("abc")
    first = engine.generate("abc", max_tokens=6, ignore_eos=True)
    assert first.tokens == engine.generate(ids, max_tokens=6, ignore_eos=True).tokens
    assert len(first.tokens) == 6 and first.finish_reason == "length"
    assert first.text == engine.core.tokenizer.decode(first.tokens)
    (record,) = first.records
    assert record.uncached_tokens + record.cached_tokens == len(ids)
    chat = engine.generate(messages=[{"role": "user", "content": "abc"}], max_tokens=3)
    assert chat.computed_tokens + chat.cached_tokens > len(ids)


def test_the_session_reaches_every_record_and_is_told(engine):
    asked = {"max_tokens": 4, "ignore_eos": True, "session_id": "s1", "tenant": "t"}
    first = engine.generate(LONG, **asked)
    second = engine.generate(LONG + "again", **asked)
    assert {r.session_id for r in (*first.records, *second.records)} == {"s1"}
    assert first.cached_tokens == 0 and second.cached_tokens >= 128
    (stats,) = engine.sessions("t")
    assert (stats.session_id, stats.requests) == ("s1", 2)
    assert engine.session("s1", "t") == stats
    assert engine.session("s1", "other") is None and engine.sessions("other") == []
    assert engine.drop_session("s1", "t") > 0
    assert engine.session("s1", "t") is None
    assert engine.generate(LONG, **asked).cached_tokens == 0


def test_a_stream_is_the_same(engine):
    asked = {"max_tokens": 8, "ignore_eos": True, "logprobs": 2}
    whole = engine.generate("abc", **asked)
    stream = engine.stream("abc", **asked)
    with pytest.raises(EngineError, match="not been read"):
        _ = stream.generated
    pieces = list(stream)
    assert "".join(piece.text for piece in pieces) == whole.text
    assert pieces[-1].finish_reason == "length"
    assert stream.generated.answers == whole.answers
    assert len(whole.answers[0].scores) == 8 and whole.answers[0].logprob < 0


def test_a_stream_that_is_left_frees_the_engine(engine):
    for piece in engine.stream("abc", max_tokens=400, ignore_eos=True):
        if piece.tokens:
            break
    assert engine.generate("abc", max_tokens=2).answers


def test_several_answers_move_the_seed(engine):
    asked = {"max_tokens": 6, "ignore_eos": True, "temperature": 1.0}
    both = engine.generate("abc", n=2, seed=7, session_id="n", **asked)
    alone = [engine.generate("abc", seed=seed, **asked) for seed in (7, 8)]
    assert [a.tokens for a in both.answers] == [a.tokens for a in alone]
    assert {record.session_id for record in both.records} == {"n"}
    assert len({record.request_id for record in both.records}) == 2


def test_best_of_is_the_likeliest_of_all(engine):
    asked = {"max_tokens": 5, "ignore_eos": True, "temperature": 2.0, "seed": 3, "logprobs": 0}
    all_ = engine.generate("abc", n=4, **asked)
    best = engine.generate("abc", n=1, best_of=4, **asked)
    assert best.answers[0] == max(all_.answers, key=lambda one: one.logprob)
    assert len(best.records) == 4


def test_a15_beams_carry_the_session_and_beat_greedy(engine):
    asked = {"max_tokens": 5, "ignore_eos": True, "session_id": "beams"}
    greedy = engine.generate("abc", logprobs=0, **asked)
    beams = engine.generate("abc", n=3, use_beam_search=True, **asked)
    logprobs = [answer.logprob for answer in beams.answers]
    assert logprobs == sorted(logprobs, reverse=True)
    assert logprobs[0] >= greedy.answers[0].logprob - 1e-4
    one = engine.generate("abc", use_beam_search=True, **asked)
    assert one.tokens == greedy.tokens, "one beam is greedy"
    assert math.isclose(one.answers[0].logprob, greedy.answers[0].logprob, rel_tol=1e-3)
    assert {record.session_id for record in beams.records} == {"beams"}
    assert len({r.request_id for r in beams.records}) == len(beams.records) == 1 + 4 * 3


def test_chunks_are_computed_as_they_come_and_the_first_id_sticks(engine):
    seen = []

    def chunks():
        yield PromptChunk(LONG, session_id="first")
        seen.append(engine.session("first", "chunks"))
        yield PromptChunk("and then ", session_id="second")
        yield "the end"

    asked = {"tenant": "chunks", "max_tokens": 4, "ignore_eos": True}
    told = engine.generate(chunks(), **asked)
    assert {record.session_id for record in told.records} == {"first"}
    assert [one.session_id for one in engine.sessions("chunks")] == ["first"]
    assert seen[0] is not None, "the first chunk was computed before the second was asked for"
    assert told.records[-1].cached_tokens > 100
    whole = engine.generate(LONG + "and then the end", max_tokens=4, ignore_eos=True)
    assert told.tokens == whole.tokens
    named = engine.generate(chunks(), session_id="call", **asked)
    assert {record.session_id for record in named.records} == {"call"}


def test_forced_tokens_and_a_schema(engine):
    told = engine.generate("abc", forced=[100, 101, 102])
    assert told.tokens == (100, 101, 102)
    assert told.text == engine.core.tokenizer.decode([100, 101, 102])
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    assert re.fullmatch(r'\{"a": (true|false)\}', engine.generate("x", schema=schema).text)


def test_async_and_cancelled(engine):
    async def chunks():
        yield LONG
        yield "end"

    async def go():
        asked = {"max_tokens": 6, "ignore_eos": True}
        both = await asyncio.gather(*(engine.agenerate("abc", **asked) for _ in range(2)))
        assert both[0].tokens == both[1].tokens == engine.generate("abc", **asked).tokens
        pieces = [piece async for piece in engine.astream("abc", **asked)]
        assert "".join(piece.text for piece in pieces) == both[0].text
        told = await engine.agenerate(chunks(), session_id="a", **asked)
        assert {record.session_id for record in told.records} == {"a"}
        beams = await engine.agenerate("abc", use_beam_search=True, n=2, **asked)
        assert len(beams.answers) == 2
        task = asyncio.create_task(engine.agenerate("abc", max_tokens=400, ignore_eos=True))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({}, RequestError),
        ({"prompt": "x", "messages": [{"role": "user", "content": "x"}]}, RequestError),
        ({"prompt": []}, RequestError),
        ({"prompt": [9999]}, RequestError),
        ({"prompt": "x", "n": 0}, RequestError),
        ({"prompt": "x", "n": 3, "best_of": 2}, RequestError),
        ({"prompt": "x", "temperature": -1}, RequestError),
        ({"prompt": "x", "max_tokens": 10_000}, RequestError),
        ({"prompt": "x", "forced": [1], "n": 2}, RequestError),
        ({"prompt": "x", "schema": {}, "use_beam_search": True}, RequestError),
        ({"messages": [{"role": "king", "content": "x"}]}, RequestError),
        ({"prompt": "x", "session_id": "a\nb"}, IdentityError),
        ({"prompt": "x", "session_id": "x" * 257}, IdentityError),
    ],
)
def test_what_cannot_be_run(engine, asked, error):
    with pytest.raises(error):
        engine.generate(**asked)


def test_what_is_not_there(engine):
    with pytest.raises(UsageError, match="embedder"):
        engine.embed(["x"])
    with pytest.raises(UsageError, match="streamed"):
        engine.stream("x", use_beam_search=True)


def test_the_example_of_the_documentation_runs(engine, monkeypatch, capsys):
    text = (ROOT / "docs/engine.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)

    class Loaded(Engine):
        @classmethod
        def load(cls, model, **options):
            embedder = type("E", (), {"embed": lambda self, texts, traffic_class:
                                      np.eye(2, dtype=np.float32)[: len(texts)],
                                      "close": lambda self: None})()  # fmt: skip
            return _Open(engine.core, embedder)

    class _Open(Engine):
        def close(self):
            """The engine serves further tests."""

    monkeypatch.setattr("agentmem.engine.engine.Engine", Loaded)
    exec(compile(code, "docs/engine.md", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out
