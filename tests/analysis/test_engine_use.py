"""Tokens that caches saved, and the seconds that models; what is not told stays empty."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentmem.analysis.compare_facts import differing
from agentmem.analysis.engine_use import engine_totals, engine_use, prefill_s_per_token
from agentmem.analysis.load import Run, load
from agentmem.records import Call, Row
from tests.analysis.build_run import write_run

TOLD = {"drafted_tokens": 6, "accepted_tokens": 4, "preemptions": 1, "recomputed_tokens": 9}


def rows(engine: dict[str, Any] | None) -> Callable[[list[Row]], list[Row]]:
    """Every generating call says the same of itself: 80 of 100 tokens computed in 0.4 s."""

    def change(given: list[Row]) -> list[Row]:
        return [
            dataclasses.replace(
                r,
                input_tokens=100,
                uncached_tokens=80,
                cache_read_tokens=20 if engine is not None else None,
                cache_write_tokens=0,
                engine=engine,
            )
            if isinstance(r, Call) and r.endpoint == "chat"
            else r
            for r in given
        ]

    return change


@pytest.fixture
def told(tmp_path: Path) -> Run:
    return load(write_run(tmp_path, rows({"prefill_s": 0.4, "decode_s": 1.0, **TOLD})))


def test_saved_seconds_are_cached_tokens_at_the_measured_rate(told: Run) -> None:
    assert prefill_s_per_token(told) == pytest.approx(0.4 / 80)
    table = engine_use(told)
    for row in table.to_dict("records"):
        n = row["attempts"]
        assert (row["cached_tokens"], row["cached_share"]) == (20 * n, 0.2)
        assert row["modelled_saved_s"] == pytest.approx(20 * n * 0.4 / 80)
        assert (row["drafted_tokens"], row["accepted_tokens"]) == (6 * n, 4 * n)
        assert (row["preemptions"], row["recomputed_tokens"]) == (n, 9 * n)
    assert {("mem0", "construction"), ("mem0", "generation")} <= set(
        zip(table["system"], table["phase"], strict=True)
    )


def test_totals_are_the_sums_of_the_phases(told: Run) -> None:
    by_phase = engine_use(told).groupby("system")["cached_tokens"].sum()
    totals = engine_totals(told).set_index("system")["cached_tokens"]
    assert list(engine_totals(told)["system"]) == told.systems
    assert {s: totals[s] for s in by_phase.index} == dict(by_phase)


def test_a_server_that_does_not_tell_leaves_it_empty(tmp_path: Path) -> None:
    run = load(write_run(tmp_path, rows(None)))
    assert prefill_s_per_token(run) is None
    table = engine_use(run)
    empty = ["cached_tokens", "cached_share", "prefill_s", "modelled_saved_s", "drafted_tokens"]
    assert len(table) and table[[*empty, "preemptions"]].isna().all().all()
    assert (table["cached_missing"] == table["attempts"]).all()


def test_embeddings_have_no_prompt_cache(told: Run) -> None:
    generating = told.calls[told.calls["endpoint"] == "chat"]
    billed = generating[generating["bucket"].isin(["measured", "harness"])]
    assert engine_totals(told)["attempts"].sum() == len(billed)


SERVED = {"model": "strong", "weights": "w", "embed_model": "e5", "embed_dims": 8}
REPLAY = {"mode": "through-engine", "served": SERVED}


def made(folder: Path, engine: str, embedder: str, **more: Any) -> Run:
    changes = {
        "engine": {"kind": "local", "model": engine, "weights": "w"},
        "embedder": {"model": embedder, "dims": 8},
    }
    return load(write_run(folder, changes=changes | more))


def test_a_forced_run_compares_with_its_record_in_all_but_times(tmp_path: Path) -> None:
    live = made(tmp_path / "a", "strong", "e5")
    same = made(tmp_path / "b", "strong", "e5", replay=REPLAY)
    other = made(tmp_path / "c", "small", "minilm", replay=REPLAY)
    assert [d for d in differing(live, same) if d.blocks] == []
    [barred] = [d for d in differing(live, other) if d.blocks]
    assert barred.key == "engine" and barred.blocks == {"time", "cpu", "energy"}
    plain = [d.key for d in differing(live, made(tmp_path / "d", "small", "e5")) if d.blocks]
    assert plain == ["model"]
