"""Token buckets by the dialects servers speak: disjoint, and unknown where nothing is said."""

from __future__ import annotations

from typing import Any

import pytest

from agentmem.gateway.usage import Usage, read_usage
from tests.gateway.conftest import Meter


def buckets(raw: Any) -> tuple[int | None, ...]:
    """(input, uncached, read, write, output, reasoning)"""
    u = read_usage(raw)
    return u.input, u.uncached, u.cache_read, u.cache_write, u.output, u.reasoning


PLAIN = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
ENGINE = {"version": 1, "uncached_tokens": 40, "cached_tokens": 60, "generated_tokens": 7}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (PLAIN, (100, None, None, None, 7, None)),
        (PLAIN | {"prompt_tokens": 10**40}, (None, None, None, None, 7, None)),
        (PLAIN | {"prompt_tokens_details": None}, (100, None, None, None, 7, None)),
        (PLAIN | {"prompt_tokens_details": {}}, (100, None, None, None, 7, None)),
        (PLAIN | {"prompt_tokens_details": {"cached_tokens": 0}}, (100, 100, 0, 0, 7, None)),
        (PLAIN | {"prompt_tokens_details": {"cached_tokens": 64}}, (100, 36, 64, 0, 7, None)),
        (
            PLAIN | {"prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 30}},
            (100, 6, 64, 30, 7, None),
        ),
        (
            PLAIN | {"completion_tokens_details": {"reasoning_tokens": 5}},
            (100, None, None, None, 7, 5),
        ),
        (
            PLAIN | {"prompt_cache_hit_tokens": 90, "prompt_cache_miss_tokens": 10},
            (100, 10, 90, 0, 7, None),
        ),
        (
            {
                "input_tokens": 10,
                "cache_read_input_tokens": 80,
                "cache_creation_input_tokens": 10,
                "output_tokens": 7,
            },
            (100, 10, 80, 10, 7, None),
        ),
        (
            {
                "input_tokens": 100,
                "input_tokens_details": {"cached_tokens": 25},
                "output_tokens": 7,
                "output_tokens_details": {"reasoning_tokens": 3},
            },
            (100, 75, 25, 0, 7, 3),
        ),
        # a proxy of a cache-beside-input server: the total is in prompt_tokens
        (PLAIN | {"cache_read_input_tokens": 80}, (100, 20, 80, 0, 7, None)),
        (PLAIN | {"agentmem": ENGINE}, (100, 40, 60, 0, 7, None)),
        ({"agentmem": ENGINE}, (100, 40, 60, 0, 7, None)),
        # embeddings: what is not prompt is output, here nothing
        ({"prompt_tokens": 9, "total_tokens": 9}, (9, None, None, None, 0, None)),
        # contradictions and nonsense tell nothing
        (
            PLAIN | {"prompt_tokens_details": {"cached_tokens": 640}},
            (100, None, None, None, 7, None),
        ),
        ({"prompt_tokens": -1, "completion_tokens": "7"}, (None,) * 6),
        ({"prompt_tokens": True, "completion_tokens": 7.0}, (None, None, None, None, 7, None)),
        ({"cache_read_input_tokens": None, "input_tokens": 5}, (None,) * 6),
        ({}, (None,) * 6),
        (None, (None,) * 6),
        ([1], (None,) * 6),
    ],
)
def test_dialects(raw: Any, expected: tuple[int | None, ...]) -> None:
    assert buckets(raw) == expected


def test_nothing_said_is_nothing_known() -> None:
    assert read_usage({}) == Usage()


@pytest.mark.parametrize("dialect", ["openai", "deepseek", "anthropic", "agentmem"])
@pytest.mark.parametrize("stream", [True, False])
def test_cache_buckets_equal_the_bill(meter: Meter, dialect: str, stream: bool) -> None:
    meter.fake.behaviour.cache = dialect  # type: ignore[assignment]
    text = "the same long beginning of a prompt and then "
    for end in ("one end", "another end", "one end"):
        meter.chat(text + end, stream=stream)
    calls, bill = meter.calls(), meter.fake.bill.of()
    assert [c.cache_read_tokens for c in calls] == [s.cached_tokens for s in bill]
    assert [c.cache_write_tokens for c in calls] == [s.cache_write_tokens for s in bill]
    assert [c.input_tokens for c in calls] == [s.input_tokens for s in bill]
    for c in calls:
        parts = (c.uncached_tokens, c.cache_read_tokens, c.cache_write_tokens)
        assert sum(p for p in parts if p is not None) == c.input_tokens and None not in parts
    assert calls[0].cache_read_tokens == 0 < (calls[1].cache_read_tokens or 0)
