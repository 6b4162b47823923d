"""Validity rules: each finds what was planted for it, and says so when it cannot tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import agentmem
from agentmem.analysis.load import Run
from agentmem.analysis.validity import check_validity
from agentmem.analysis.validity_energy import NO_ORDER, energy_order
from agentmem.analysis.validity_rows import completeness, lane, stored_nothing, validity_rows
from agentmem.analysis.verdict import Check
from agentmem.records import Call, Query, Row, Unit, Window
from agentmem.report.notices import warnings
from tests.analysis.build_run import write_run
from tests.analysis.synth import manifest

Change = Callable[[Row], Row]


def changed(folder: Path, change: Change, changes: dict[str, Any] | None = None) -> Run:
    return agentmem.load(write_run(folder, lambda rows: [change(r) for r in rows], changes))


def verdicts(run: Run) -> dict[str, Check]:
    return {check.rule: check for check in check_validity(run)}


def contention(share: float, *flagged: str) -> dict[str, Any]:
    """As `runner.quality.summary` writes it."""
    whole = {"seconds": 60.0, "wait_share": share, "stall_share": 0.1, "steal_share": None}
    scopes = {name: whole | {"wait_share": 0.5} for name in flagged}
    return {
        "limit": 0.1,
        "run": whole,
        "exceeded": share > 0.1,
        "scopes": scopes,
        "flagged": list(flagged),
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    params = {"seed": 7, "unit": "session", "tokenizer": "smollm2"}
    workload = manifest()["workload"] | {"params": params}
    changes = {"workload": workload, "contention": contention(0.031)}
    return agentmem.load(write_run(tmp_path_factory.mktemp("run"), changes=changes))


def test_what_holds_in_an_honest_run(run: Run) -> None:
    found = {rule: check.ok for rule, check in verdicts(run).items()}
    # The synthetic run has a kind at the cap, a question that timed out and no set-up on record.
    assert found == dict.fromkeys(found, True) | {"V3": False, "V6": None, "V8": False}
    assert all(check.detail for check in verdicts(run).values())


def test_unknown_is_neither_yes_nor_no(tmp_path: Path) -> None:
    found = verdicts(agentmem.load(write_run(tmp_path)))
    assert found["V2"].ok is None and found["V9"].ok is None


def nothing_stored(row: Row) -> Row:
    if isinstance(row, Unit) and row.system == "mem0":
        return replace(row, added=0, updated=0, lost=4)
    return row


def test_a_system_that_stored_nothing_is_named(tmp_path: Path) -> None:
    found = changed(tmp_path, nothing_stored)
    assert stored_nothing(found, "mem0") and not stored_nothing(found, "bm25")
    assert completeness(found, "mem0") == (
        "stored nothing: all 16 facts lost; 1 of 10 questions failed"
    )
    check = verdicts(found)["V1"]
    assert check.ok is False and check.detail == "Mem0 stored nothing: all 16 facts lost"


def test_a_system_that_keeps_no_records_may_store_nothing(tmp_path: Path) -> None:
    def empty(row: Row) -> Row:
        return replace(row, added=0) if isinstance(row, Unit) else row

    assert not stored_nothing(changed(tmp_path, empty), "long_context")


def test_completeness_in_words(run: Run) -> None:
    assert completeness(run, "bm25") == "complete"
    assert completeness(run, "mem0") == "1 fact lost; 1 of 10 questions failed"
    assert completeness(run, "no_memory") is None


def test_native_answers_are_a_lane_of_their_own(tmp_path: Path) -> None:
    def native(row: Row) -> Row:
        return replace(row, native_answer=True) if row_of(row, Query, "mem0") else row

    found = changed(tmp_path, native)
    assert lane(found, "mem0") == "system's own loop" and lane(found, "bm25") == "harness"
    check = verdicts(found)["V7"]
    assert check.ok is False and "Mem0: answers by system's own loop" in check.detail


def row_of(row: Row, kind: type[Any], system: str) -> bool:
    return isinstance(row, kind) and row.system == system


def test_engine_and_gateway_stand_side_by_side(run: Run) -> None:
    row = validity_rows(run).set_index("system").loc["mem0"]
    # 20 chat attempts, of which one answered 429: nothing is known of that one.
    assert row["chat_calls"] == row["engine_calls"] == 19
    assert row["usage_tokens"] == row["engine_tokens"]
    assert row["engine_mismatch"] == 0


def test_an_engine_that_disagrees_is_counted(tmp_path: Path) -> None:
    def lies(row: Row) -> Row:
        if isinstance(row, Call) and row.kind == "decide" and row.engine:
            return replace(row, engine={**row.engine, "generated_tokens": 11})
        return row

    row = validity_rows(changed(tmp_path, lies)).set_index("system").loc["mem0"]
    assert row["engine_mismatch"] == 4
    assert row["engine_tokens"] == row["usage_tokens"] + 4


def test_a_server_without_an_engine_record_says_nothing(tmp_path: Path) -> None:
    def foreign(row: Row) -> Row:
        return replace(row, engine=None) if isinstance(row, Call) else row

    row = validity_rows(changed(tmp_path, foreign)).set_index("system").loc["mem0"]
    assert row["engine_calls"] == 0
    assert pd.isna(row["engine_mismatch"]) and pd.isna(row["step_share_s"])


def test_engine_seconds_beyond_the_latency_are_a_fault(tmp_path: Path) -> None:
    def slow(row: Row) -> Row:
        if isinstance(row, Call) and row.kind == "decide" and row.engine:
            return replace(row, engine={**row.engine, "decode_s": row.latency_s + 5})
        return row

    check = verdicts(changed(tmp_path, slow))["V5"]
    assert check.ok is False and "Mem0" in check.detail


def test_no_order_by_energy_where_bands_overlap(run: Run) -> None:
    assert energy_order(run) == NO_ORDER


def test_bands_that_lie_apart_have_an_order(tmp_path: Path) -> None:
    def heavy(row: Row) -> Row:
        return replace(row, engine_cpu_s=50.0) if row_of(row, Window, "mem0") else row

    order = energy_order(changed(tmp_path, heavy))
    assert order == f"Mem0 above Long context, BM25 and embedRAG; other {NO_ORDER}"


def test_a_crowded_machine_is_flagged(tmp_path: Path) -> None:
    def judged(found: dict[str, Any]) -> Check:
        changes = {"contention": found, "notes": ["contention: also a note"]}
        run = agentmem.load(write_run(tmp_path, changes=changes))
        told = [line for line in warnings(run) if "contention" in line or "core" in line]
        check = verdicts(run)["V9"]
        assert len(told) == 1, "said once"
        return check

    whole = judged(contention(0.42))
    assert whole.ok is False and "42.0 %" in whole.detail
    part = judged(contention(0.05, "mem0.ana"))
    assert part.ok is False and part.detail.endswith("above it: mem0.ana")


def test_set_up_is_counted_apart(tmp_path: Path) -> None:
    def starts(rows: list[Row]) -> list[Row]:
        first = {r.system: r for r in reversed(rows) if isinstance(r, Window)}
        made = [
            replace(w, phase=None, bucket="setup", unit=None, start_s=-3.0, end_s=-1.0, quiet_s=0.0)
            for w in first.values()
        ]
        return [*made, *rows]

    found = agentmem.load(write_run(tmp_path, starts))
    assert verdicts(found)["V6"].ok is True
    assert validity_rows(found).set_index("system").loc["mem0", "setup_s"] == pytest.approx(2.0)


def test_a_mended_upstream_is_named(tmp_path: Path) -> None:
    systems = manifest()["systems"]
    systems["mem0"] |= {"fidelity": "fixed"}
    check = verdicts(agentmem.load(write_run(tmp_path, changes={"systems": systems})))["V10"]
    assert check.ok is False and check.detail == "Mem0: fixed"
