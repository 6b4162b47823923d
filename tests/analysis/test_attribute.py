"""Phases, energy and statistics against figures worked by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentmem
from agentmem.analysis import breakdown, tables
from agentmem.analysis.attribute import phase_frame, token_sum
from agentmem.analysis.conserve import conservation, unattributed_line
from agentmem.analysis.frames import calls_frame, frame
from agentmem.analysis.load import Run
from agentmem.analysis.settle import settle
from agentmem.analysis.stats import logical_calls, percentile, union_seconds, wilson
from agentmem.records import Call, Query, Row, TokenSum, Window
from agentmem.report.inert import cells
from agentmem.report.sheets import phases
from tests.analysis.build_run import Doctor, build_rows, write_run
from tests.analysis.synth import begin_of, moved, new_call


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return agentmem.load(write_run(tmp_path_factory.mktemp("run")))


def phase_row(run: Run, system: str, phase: str, bucket: str = "measured") -> dict[str, Any]:
    table = run.phases
    chosen = (table["system"] == system) & (table["phase"] == phase) & (table["bucket"] == bucket)
    (row,) = table[chosen].to_dict("records")
    return row


def test_write_path_of_one_system(run: Run) -> None:
    row = phase_row(run, "mem0", "construction")
    # Per unit 900 + 500 in and 10 + 10 out; one reply hits the cap of 256; a retry adds 100, 10.
    assert (row["input_tokens"], row["output_tokens"]) == (4 * 1400 + 100, 3 * 20 + 266 + 10)
    assert row["embed_tokens"] == 4 * 3 * 24
    assert (row["attempts"], row["logical_calls"], row["failed_attempts"]) == (22, 21, 1)
    assert (row["failed_logical"], row["input_tokens_missing"]) == (0, 1)


def test_quiet_is_not_wall_time(run: Run) -> None:
    row = phase_row(run, "bm25", "construction")
    assert row["wall_s"] == pytest.approx(4 * 0.02)
    assert row["quiet_s"] == pytest.approx(4 * 0.05)


def test_failed_calls_have_no_latency(tmp_path: Path) -> None:
    slow = new_call(
        "slow",
        scope="mem0-ana",
        latency_s=500.0,
        outcome="http_error",
        status=500,
        input_tokens=None,
        output_tokens=None,
    )
    doctored = agentmem.load(write_run(tmp_path, lambda rows: [*rows, begin_of(slow), slow]))
    row = phase_row(doctored, "mem0", "construction")
    assert row["chat_p95_s"] < 2 and row["failed_logical"] == 1


def test_logical_latency_spans_its_attempts() -> None:
    first = new_call("a", logical_id="L", outcome="http_error", start_s=1.0, latency_s=0.5)
    second = new_call("b", logical_id="L", attempt=1, start_s=3.0, latency_s=1.0)
    (row,) = logical_calls(calls_frame([second, first], {"a": None, "b": None})).to_dict("records")
    assert (row["ok"], row["latency_s"], row["attempts"]) == (True, 3.0, 2)


def test_conservation_holds_and_is_spelled_out(run: Run) -> None:
    lines = conservation(run.phases, run.journal)
    assert all(line.holds for line in lines)
    assert str(lines[0]) == (
        "calls: construction 26 + retrieval 20 + generation 40 + harness 20 + unattributed 0 = 106"
    )
    assert unattributed_line(run.phases) == "unattributed: 0 calls, 0 tokens"


def test_conservation_fails_when_a_phase_loses_a_token(run: Run) -> None:
    short = run.phases.copy()
    short.loc[short.index[0], "output_tokens"] = 1
    lines = conservation(short, run.journal)
    assert [line.quantity for line in lines if not line.holds] == ["output tokens"]
    assert "does NOT add up" in str(lines[2])


def test_late_calls_are_printed(tmp_path: Path) -> None:
    late = new_call("late", phase=None, bucket="unattributed", input_tokens=70, output_tokens=7)
    found = agentmem.load(write_run(tmp_path, lambda rows: [*rows, begin_of(late), late]))
    assert unattributed_line(found.phases) == "unattributed: 1 calls, 77 tokens"
    assert all(line.holds for line in conservation(found.phases, found.journal))


@pytest.mark.parametrize("phases", [("retrieval",), ("retrieval", "construction", "generation")])
def test_moving_calls_keeps_the_sums(phases: tuple[str, ...]) -> None:
    rows = build_rows()
    calls = [r for r in rows if isinstance(r, Call)]
    moves: list[Row] = [moved(c.call_id, p) for c, p in zip(calls, phases, strict=False)]
    found, before = settled_phases([*rows, *moves]), settled_phases(rows)
    assert all(line.holds for line in conservation(found, tuple(rows)))
    assert conservation(found, tuple(rows)) != conservation(before, tuple(rows))


def settled_phases(rows: list[Row]) -> pd.DataFrame:
    done = settle(rows)
    calls = calls_frame(done.calls, dict(done.booked))
    return phase_frame(calls, frame(done.windows, Window), {})


def every_window(**changes: Any) -> Doctor:
    return lambda rows: [replace(r, **changes) if isinstance(r, Window) else r for r in rows]


def test_modelled_energy_is_cpu_seconds_times_watts(run: Run) -> None:
    row = phase_row(run, "embedrag", "generation")
    cpu = row["worker_cpu_s"] + row["engine_cpu_s"]
    assert row["energy_source"] == "modelled"
    joules = [row[f"modelled_{edge}_j"] for edge in ("low", "mid", "high")]
    assert joules == pytest.approx([2 * cpu, 4 * cpu, 8 * cpu])


def test_a_counter_takes_the_place_of_the_model(tmp_path: Path) -> None:
    counted = every_window(energy_j=2.5, energy_source="counter", energy_scope="package")
    found = agentmem.load(write_run(tmp_path, counted))
    row = phase_row(found, "bm25", "generation")
    assert (row["energy_j"], row["energy_source"]) == (25.0, "counter")
    t3 = tables.end_to_end(found).set_index("system").loc["bm25"]
    assert t3["energy_j"] == pytest.approx(24 * 2.5)
    assert pd.isna(t3["energy_low_j"])


def test_sources_are_never_added(tmp_path: Path) -> None:
    def mixed(rows: list[Row]) -> list[Row]:
        return [
            replace(r, energy_j=1.0, energy_source="counter")
            if isinstance(r, Window) and r.phase == "generation"
            else r
            for r in rows
        ]

    t3 = tables.end_to_end(agentmem.load(write_run(tmp_path, mixed))).set_index("system")
    assert t3.loc["mem0", "energy_source"] == "none"
    assert pd.isna(t3.loc["mem0", "energy_j"])


def test_unknown_engine_time_leaves_energy_unknown(tmp_path: Path) -> None:
    found = agentmem.load(write_run(tmp_path, every_window(engine_cpu_s=None)))
    row = phase_row(found, "mem0", "construction")
    assert row["energy_source"] == "none" and pd.isna(row["energy_j"])
    # BM25 calls no model while building: its worker's CPU time is the whole of it.
    assert phase_row(found, "bm25", "construction")["energy_source"] == "modelled"


def test_unknown_worker_time_leaves_energy_unknown_and_not_zero(tmp_path: Path) -> None:
    """A set-up whose worker was not there at its beginning, and an engine that did nothing."""

    def with_setup(rows: list[Row]) -> list[Row]:
        one = next(r for r in rows if isinstance(r, Window) and r.system == "bm25")
        blind = replace(one, phase=None, bucket="setup", worker_cpu_s=None, engine_cpu_s=0.0)
        return [blind, *rows]

    found = agentmem.load(write_run(tmp_path, with_setup))
    setup = found.phases[found.phases["bucket"] == "setup"].iloc[0]
    names = ("cpu_s", "energy_j", "modelled_low_j", "modelled_mid_j", "modelled_high_j")
    assert all(pd.isna(setup[name]) for name in names) and setup["energy_source"] == "none"
    (line,) = [r for r in cells(phases([("r", found)]).frame).to_dict("records")
               if r["bucket"] == "setup"]  # fmt: skip
    assert all(pd.isna(line[name]) for name in names)
    harness = phase_row(found, "oracle_evidence", "generation", "harness")
    assert harness["energy_source"] == "modelled", "a reference has no worker to be unknown"


def test_no_correct_answer_has_no_energy_per_answer(tmp_path: Path) -> None:
    def all_wrong(rows: list[Row]) -> list[Row]:
        return [replace(r, answer="Nowhere") if isinstance(r, Query) else r for r in rows]

    t3 = tables.end_to_end(agentmem.load(write_run(tmp_path, all_wrong)))
    assert t3["correct"].sum() == 0 and t3["energy_j"].gt(0).all()
    assert t3["j_per_correct"].isna().all()


def test_end_to_end_row(run: Run) -> None:
    row = tables.end_to_end(run).set_index("system").loc["mem0"]
    assert (row["questions"], row["correct"], row["accuracy"]) == (10, 2, 0.2)
    assert (row["chat_calls"], row["embed_calls"], row["failed_calls"]) == (20, 22, 1)
    assert row["j_per_correct"] == pytest.approx(row["energy_j"] / 2)
    assert row["tokens_missing"] == 2


def test_wall_states_add_up(run: Run) -> None:
    states = breakdown.wall_states(run)
    parts = states[[f"{s}_s" for s in breakdown.STATES]]
    assert (parts >= 0).all(axis=None)
    assert parts.sum(axis=1).to_numpy() == pytest.approx(states["wall_s"].to_numpy())


def test_cap_bound_kind_is_flagged(run: Run) -> None:
    kinds = breakdown.calls_by_kind(run).set_index(["system", "kind"])
    assert kinds.loc[("Mem0", "extract"), "cap_share"] == pytest.approx(1 / 5)
    assert kinds["cap_bound"].sum() == 1


def test_write_path_table(run: Run) -> None:
    row = breakdown.construction(run).set_index("system").loc["Mem0"]
    assert (row["added"], row["updated"], row["lost"]) == (12, 6, 1)
    assert row["tokens_per_source_token"] == pytest.approx((5700 + 336) / (4 * 262))


@given(st.lists(st.one_of(st.none(), st.integers(0, 10**6))))
def test_token_sum_counts_the_unknown(values: list[int | None]) -> None:
    known = [v for v in values if v is not None]
    expected = TokenSum(sum(known), len(known), len(values) - len(known))
    assert token_sum(pd.Series(values, dtype="Int64")) == expected


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=8))
def test_union_counts_each_second_once(spans: list[tuple[int, int]]) -> None:
    starts = pd.Series([s for s, _ in spans], dtype=float)
    ends = pd.Series([s + n for s, n in spans], dtype=float)
    seconds = {t for s, n in spans for t in range(s, s + n)}
    assert union_seconds(starts, ends) == len(seconds)


def test_small_statistics() -> None:
    assert percentile(pd.Series([], dtype=float), 50) is None
    assert percentile(pd.Series([1.0, 2.0, None]), 50) == 1.5
    assert wilson(0, 0) is None
    # Wilson's interval for 5 of 10, from its closed form.
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
