"""Shares of a step's time, and what a step is said to cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.engine.core import EngineCore
from agentmem.engine.loader import load_decoder
from agentmem.engine.models.alone import Alone
from agentmem.engine.truth import CostModel, StepRow, Work, modelled_ps, pairs, split
from tests.engine.core.drive import start


@given(st.integers(0, 10**12), st.lists(st.integers(0, 10**15), min_size=1, max_size=40))
def test_parts_add_up_exactly(total: int, weights: list[int]) -> None:
    parts = split(total, weights)
    assert sum(parts) == total
    assert min(parts) >= 0
    if any(weights):
        for part, weight in zip(parts, weights, strict=True):
            assert part >= total * weight // sum(weights)


def test_the_remainder_goes_to_the_largest() -> None:
    assert split(10, [1, 2, 1]) == [2, 6, 2]
    assert split(7, [1, 1]) == [4, 3]
    assert split(5, [0, 0]) == [3, 2]
    assert split(5, []) == []


@pytest.mark.parametrize("window", [None, 1, 3, 8, 100])
def test_pairs_are_those_that_a_mask_leaves(window: int | None) -> None:
    for context in range(1, 20):
        for rows in range(1, context + 1):
            seen = sum(
                min(place + 1, window or place + 1) for place in range(context - rows, context)
            )
            assert pairs(rows, context, window) == seen


def test_the_model_counts_weights_once_and_rows_each(toy_folder: Callable[[str], Path]) -> None:
    decoder = load_decoder(toy_folder("llama"), "fp32")
    model = CostModel(decoder, Alone(decoder, 16).pages)
    layer = 64 * (64 + 2 * 32) + 64 * 64 + 3 * 64 * 96
    read, operations = model.step([Work(5, 5, 1), Work(1, 40, 1), Work(7, 7, 0)])
    state = 3 * 2 * 32 * 4
    assert sum(read) == 4 * (3 * layer + 259 * 64) + state * (5 + 40 + 7)
    assert operations[0] == 2 * (5 * 3 * layer + 259 * 64) + 4 * 64 * 3 * 15
    assert operations[1] == 2 * (3 * layer + 259 * 64) + 4 * 64 * 3 * 40
    assert operations[2] == 2 * 7 * 3 * layer + 4 * 64 * 3 * 28


def test_sliding_layers_read_their_window_only(toy_folder: Callable[[str], Path]) -> None:
    decoder = load_decoder(toy_folder("gemma3"), "fp32")
    model = CostModel(decoder, Alone(decoder, 16).pages)
    (near,), _ = model.step([Work(1, 8, 0)])
    (far,), _ = model.step([Work(1, 100, 0)])
    full_layers, row = 1, 2 * 32 * 4
    assert far - near == full_layers * row * 92


def test_work_is_bound_by_what_takes_longer() -> None:
    assert modelled_ps(25_000_000_000, 1) == 10**12
    assert modelled_ps(1, 400_000_000_000) == 10**12


def test_steps_of_a_crowd_add_up_to_its_records(toy_folder: Callable[[str], Path]) -> None:
    rows: list[StepRow] = []
    engine = EngineCore.load(
        toy_folder("llama"), mode="fp32", threads=1, step_tokens=64, on_step=rows.append
    )
    answers = [
        start(engine, [97 + i] * (20 + 30 * i), request_id=str(i), max_tokens=12, reuse=False)
        for i in range(4)
    ]
    records = {a.request_id: a.wait().record for a in answers}
    engine.close()
    assert [row.number for row in rows] == list(range(1, len(rows) + 1))
    for row in rows:
        assert sum(s.wall_ns for s in row.shares) == row.wall_ns
        assert sum(s.cpu_ns for s in row.shares) == row.cpu_ns
        assert sum(s.rows for s in row.shares) == row.rows <= 64
    assert any(len(row.shares) == 4 for row in rows)
    for name, record in records.items():
        mine = [s for row in rows for s in row.shares if s.request_id == name]
        assert record.step_share_s == sum(s.wall_ns for s in mine) / 1e9
        assert record.cpu_s == sum(s.cpu_ns for s in mine) / 1e9
        assert record.read_bytes == sum(s.read_bytes for s in mine)
        assert record.operations == sum(s.operations for s in mine)
        whole = record.queue_s + record.prefill_s + record.decode_s
        assert record.ttft_s is not None
        assert whole >= record.ttft_s >= record.prefill_s * 0.99
        assert record.step_share_s <= record.prefill_s + record.decode_s
    total = engine.stats()
    assert total.steps == len(rows)
    assert total.step_s == pytest.approx(sum(row.wall_ns for row in rows) / 1e9)
