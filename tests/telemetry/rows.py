"""Rows to write: one plain example of each type, and a hypothesis strategy for random ones."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from agentmem import records

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)


def _values(hint: Any) -> st.SearchStrategy[Any]:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return st.sampled_from(args)
    if origin is types.UnionType or origin is typing.Union:
        return st.one_of([_values(arg) for arg in args])
    if origin is tuple:
        return st.lists(_values(args[0]), max_size=3).map(tuple)
    if origin is Mapping:
        return st.dictionaries(st.text(max_size=5), JSON_VALUES, max_size=3)
    return {
        int: st.integers(-(2**62), 2**62),
        float: st.floats(allow_nan=False, allow_infinity=False),
        # Lone surrogates too: a model's broken output must not break the bill.
        str: st.text(st.characters(exclude_categories=()), max_size=8),
        bool: st.booleans(),
        type(None): st.none(),
    }[hint]


def _random(cls: type[Any]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(cls)
    return st.builds(cls, **{f.name: _values(hints[f.name]) for f in dataclasses.fields(cls)})


ROWS: st.SearchStrategy[records.Row] = st.one_of(map(_random, records.ROW_TYPES.values()))


def make_call(call_id: str = "c1", **changes: Any) -> records.Call:
    """A finished chat call, 1.0 s to 1.5 s, 100 tokens in and 7 out."""
    values: dict[str, Any] = {f.name: None for f in dataclasses.fields(records.Call)}
    values.update(
        call_id=call_id, logical_id="l1", attempt=0, scope="s1", system="bm25", history="h1",
        unit="u1", phase="construction", bucket="measured", kind="extract", endpoint="chat",
        model="m", stream=False, start_s=1.0, latency_s=0.5, status=200, outcome="ok",
        input_tokens=100, output_tokens=7, request_bytes=10, response_bytes=20,
        request_hash="ab", finish_reason="stop", epoch=0, repeat=0,
    )  # fmt: skip
    return records.Call(**(values | changes))


def make_window(phase: records.Phase | None = "construction", **changes: Any) -> records.Window:
    """A window of unit u1 around `make_call`."""
    values: dict[str, Any] = {f.name: None for f in dataclasses.fields(records.Window)}
    values.update(
        scope="s1", system="bm25", history="h1", phase=phase, bucket="measured", unit="u1",
        start_s=0.9, end_s=1.6, quiet_s=0.0, energy_source="none", epoch=0, repeat=0,
    )  # fmt: skip
    return records.Window(**(values | changes))


def make_footprint(size_bytes: int, store: str = "index") -> records.Footprint:
    """A small row with a number to recognise it by."""
    return records.Footprint("s1", "bm25", "h1", store, size_bytes, "closed")
