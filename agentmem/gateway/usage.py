"""A server's usage object as disjoint token buckets (R2, R3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call by the server's word; input = uncached + cache_read + cache_write."""

    input: int | None = None
    uncached: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    output: int | None = None
    reasoning: int | None = None
    engine: Mapping[str, Any] | None = None
    """`usage.agentmem`, as given."""


def read_usage(raw: object) -> Usage:
    """Buckets from a chat, completion, responses, embedding or messages style usage object."""
    if not isinstance(raw, Mapping):
        return Usage()
    engine = raw.get("agentmem")
    engine = engine if isinstance(engine, Mapping) else None
    prompt = _first(raw, "prompt_tokens", "input_tokens")
    read, write = _cache(raw, engine)
    total_input, read, write = _whole_input(raw, engine, prompt, read, write)
    uncached = None
    if total_input is not None and read is not None and write is not None:
        uncached = total_input - read - write
        if uncached < 0:  # a server contradicting itself tells nothing about its cache
            uncached = read = write = None
    return Usage(
        input=total_input,
        uncached=uncached,
        cache_read=read,
        cache_write=write,
        output=_output(raw, engine, prompt),
        reasoning=_first(
            _details(raw, "completion_tokens_details", "output_tokens_details"), "reasoning_tokens"
        ),
        engine=engine,
    )


def _cache(
    raw: Mapping[str, Any], engine: Mapping[str, Any] | None
) -> tuple[int | None, int | None]:
    """Tokens read from and written to a prompt cache.

    A server that splits its prompt into cached and not cached has no separate class of written
    tokens: that bucket is then empty, not unknown.
    """
    details = _details(raw, "prompt_tokens_details", "input_tokens_details")
    read = _first(engine or {}, "cached_tokens")
    if read is None:
        read = _first(details, "cached_tokens")
    if read is None:
        read = _first(raw, "cache_read_input_tokens", "prompt_cache_hit_tokens", "cached_tokens")
    write = _first(details, "cache_write_tokens", "cache_creation_tokens")
    if write is None:
        write = _first(raw, "cache_creation_input_tokens")
    if write is None and read is not None:
        write = 0
    return read, write


def _whole_input(
    raw: Mapping[str, Any],
    engine: Mapping[str, Any] | None,
    prompt: int | None,
    read: int | None,
    write: int | None,
) -> tuple[int | None, int | None, int | None]:
    """Input with the cached part in it, whatever the server's `input_tokens` leaves out."""
    beside = "prompt_tokens" not in raw and "input_tokens_details" not in raw
    if prompt is not None and beside and "cache_read_input_tokens" in raw:
        if read is None or write is None:
            return None, read, write
        return prompt + read + write, read, write
    if prompt is None and engine is not None:
        uncached = _first(engine, "uncached_tokens")
        if uncached is not None and read is not None:
            return uncached + read, read, write
    return prompt, read, write


def _output(
    raw: Mapping[str, Any], engine: Mapping[str, Any] | None, prompt: int | None
) -> int | None:
    output = _first(raw, "completion_tokens", "output_tokens")
    if output is None:
        output = _first(engine or {}, "generated_tokens")
    total = _first(raw, "total_tokens")
    if output is None and total is not None and prompt is not None and total >= prompt:
        output = total - prompt
    return output


def _details(raw: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for name in names:
        if isinstance(value := raw.get(name), Mapping):
            return value
    return {}


def _first(raw: Mapping[str, Any], *names: str) -> int | None:
    """The first of the named fields that is a count."""
    for name in names:
        value = raw.get(name)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
            return value
    return None
