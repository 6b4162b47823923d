"""Drafts from the text, and that they never change what is said."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from agentmem.engine.constraints import Grammars
from agentmem.engine.core import EngineCore
from agentmem.engine.drafts import Drafter, Lookup
from tests.engine.core.drive import Answer, run, start


def _slow_find(tokens: list[int], count: int) -> list[int]:
    for length in (5, 3):
        tail = tokens[-length:]
        for at in range(len(tokens) - 1, length - 1, -1):
            if len(tail) == length and tokens[at - length : at] == tail:
                period = len(tokens) - at
                return [tokens[at + i % period] for i in range(count)]
    return []


def test_the_last_place_of_the_longest_match_is_found() -> None:
    rng = random.Random(1)
    tokens: list[int] = []
    lookup = Lookup(tokens)
    found = 0
    for _ in range(400):
        tokens.append(rng.randrange(3))
        if rng.random() < 0.7:
            expected = _slow_find(tokens, 6)
            assert lookup.find(6) == expected
            found += bool(expected)
    assert found > 100


def test_a_repetition_goes_on() -> None:
    assert Lookup([1, 2, 1, 2, 1, 2, 1]).find(5) == [2, 1, 2, 1, 2]
    assert Lookup([1, 2, 3, 4]).find(5) == []


def test_failures_make_drafts_rare() -> None:
    tokens = [1, 2, 3] * 10
    drafter = Drafter(tokens)
    drafted = 0
    for _ in range(256):
        draft = drafter.propose(16)
        if draft:
            drafted += 1
            drafter.learn(len(draft), 0)
    assert drafted == 4


def test_success_makes_drafts_longer() -> None:
    drafter = Drafter([1, 2, 3] * 10)
    lengths = []
    for _ in range(4):
        draft = drafter.propose(64)
        lengths.append(len(draft))
        drafter.learn(len(draft), len(draft))
    assert lengths == [4, 8, 15, 15]
    drafter.learn(15, 5)
    assert len(drafter.propose(64)) == 6
    assert drafter.propose(0) == []


@pytest.fixture(scope="module")
def pair(toy_folder: Callable[[str], Path]) -> Iterator[tuple[EngineCore, EngineCore]]:
    """With drafts and without."""
    options: dict[str, Any] = {"mode": "fp32", "threads": 1, "invariant": True, "backend": "torch"}
    engines = [EngineCore.load(toy_folder("llama"), drafts=on, **options) for on in (True, False)]
    yield engines[0], engines[1]
    for engine in engines:
        engine.close()


class _Letters:
    """A grammar of two letters, so that a draft is right about every second time."""

    def allowed(self) -> Any:
        return [token in (97, 98) for token in range(259)]

    def advance(self, token: int) -> bool:
        return False


def _sampled(engine: EngineCore, seeds: range, tokens: int) -> list[Answer]:
    prompt = random.Random(4).choices((97, 98), k=60)
    wish: dict[str, Any] = {"temperature": 2.0, "max_tokens": tokens, "tenant": "t"}
    made = []
    # few at a time: a step that is full already has no room for drafts
    for at in range(0, len(seeds), 4):
        few = [
            start(engine, prompt, seed=n, constraint=_Letters(), **wish) for n in seeds[at : at + 4]
        ]
        made += [answer.wait() for answer in few]
    return made


def test_greedy_text_is_the_same_and_takes_fewer_steps(pair) -> None:
    drafting, plain = pair
    prompt = [97, 98, 99] * 8
    expected = run(plain, prompt, max_tokens=120)
    before = drafting.stats().steps
    found = run(drafting, prompt, max_tokens=120)
    assert found.tokens == expected.tokens
    assert expected.record.drafted_tokens == 0
    record = found.record
    assert 0 < record.accepted_tokens <= record.drafted_tokens
    assert drafting.stats().steps - before == 120 - record.accepted_tokens
    assert record.generated_tokens == 120


def test_sampled_text_is_the_same_for_a_seed(pair) -> None:
    ours, theirs = (_sampled(engine, range(8), 30) for engine in pair)
    assert [a.tokens for a in ours] == [a.tokens for a in theirs]
    drafted = sum(a.record.drafted_tokens for a in ours)
    accepted = sum(a.record.accepted_tokens for a in ours)
    assert 0.2 * drafted < accepted < 0.8 * drafted
    assert drafted > 50


def test_the_distribution_of_sampled_tokens_stays(pair) -> None:
    """Of the three tokens after the first, with other seeds on each side."""
    drafting, plain = pair
    sides = [_sampled(drafting, range(300), 4), _sampled(plain, range(1000, 1300), 4)]
    assert sum(a.record.accepted_tokens for a in sides[0]) > 100
    ours, theirs = (Counter(tuple(a.tokens[1:]) for a in side) for side in sides)
    # two samples of one distribution: a chi-squared statistic with so many degrees of freedom
    kinds = [key for key in ours.keys() | theirs.keys() if ours[key] + theirs[key] >= 10]
    statistic = sum((ours[key] - theirs[key]) ** 2 / (ours[key] + theirs[key]) for key in kinds)
    assert len(kinds) >= 5
    assert statistic < len(kinds) + 4 * (2 * len(kinds)) ** 0.5


class _Word:
    """A grammar of one word over and over."""

    def __init__(self, word: list[int], tokens: int) -> None:
        self.word, self.left, self.at = word, tokens, 0

    def allowed(self) -> Any:
        mask = torch.zeros(259, dtype=torch.bool)
        mask[self.word[self.at % len(self.word)]] = True
        return mask

    def advance(self, token: int) -> bool:
        assert token == self.word[self.at % len(self.word)], "only what was accepted is advanced"
        self.at += 1
        self.left -= 1
        return self.left == 0


def test_a_grammar_rules_drafts_too(pair) -> None:
    drafting, _ = pair
    word = [101, 102, 103, 104]
    # the prompt suggests another continuation than the grammar allows
    prompt = [101, 102, 103, 120, 121] * 4 + [101, 102, 103]
    answer = run(drafting, prompt, max_tokens=60, constraint=_Word(word, 40))
    assert answer.tokens == word * 10
    assert answer.record.drafted_tokens > answer.record.accepted_tokens > 10


def test_a_request_can_do_without(pair) -> None:
    drafting, _ = pair
    record = run(drafting, [97, 98, 99] * 8, max_tokens=60, drafts=False).record
    assert record.drafted_tokens == 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_a_grammar_forces_is_drafted(pair, temperature: float) -> None:
    drafting, plain = pair
    schema = {
        "type": "object",
        "properties": {
            "favourite_colour": {"enum": ["blue", "black", "green"]},
            "number_of_children": {"enum": [1, 12]},
        },
        "required": ["favourite_colour", "number_of_children"],
        "additionalProperties": False,
    }
    grammar = Grammars(drafting.tokenizer, drafting.vocab_size).json_schema(schema)
    wish: dict[str, Any] = {"max_tokens": 80, "temperature": temperature, "seed": 5}
    before = drafting.stats().steps
    found, expected = (
        run(engine, [97, 98, 99], constraint=grammar.start(), ignore_eos=False, **wish)
        for engine in pair
    )
    assert found.text == expected.text
    assert json.loads(found.text).keys() == schema["properties"].keys()
    assert found.record.accepted_tokens == found.record.drafted_tokens > 30
    assert drafting.stats().steps - before < 15
    assert plain.stats().drafted_tokens == 0
