"""The write path's ratios against figures worked out by hand, and unknowns that stay unknown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import agentmem
from agentmem.analysis.load import Run
from agentmem.analysis.writepath import write_path
from agentmem.analysis.writepath_pay import NEVER
from agentmem.records import Call, Row, Sample, Unit, Window
from tests.analysis.build_run import write_run

SOURCE_TOKENS, SOURCE_CHARS, SOURCE_BYTES = 4 * 262, 4 * 1180, 4 * 1200


def rewritten(folder: Path, change: Callable[[Row], Row]) -> Run:
    return agentmem.load(write_run(folder, lambda rows: [change(r) for r in rows]))


def row_for(run: Run, system: str) -> dict[str, Any]:
    table = write_path(run)
    return dict(table[table["system"] == system].iloc[0])


def known_bytes(row: Row) -> Row:
    return replace(row, source_bytes=1200) if isinstance(row, Unit) else row


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return rewritten(tmp_path_factory.mktemp("run"), known_bytes)


def test_tokens_per_source(run: Run) -> None:
    row = row_for(run, "mem0")
    # Four extracts of 900, four decides of 500 and a retry's 100; 256 + 8 x 10 written.
    llm = 5700 + 336
    assert (row["llm_tokens"], row["embed_tokens"]) == (llm, 4 * 3 * 24)
    assert row["llm_per_source_token"] == pytest.approx(llm / SOURCE_TOKENS)
    assert row["embed_per_source_token"] == pytest.approx(288 / SOURCE_TOKENS)
    assert row["llm_per_1000_chars"] == pytest.approx(1000 * llm / SOURCE_CHARS)
    assert row["tokens_missing"] == 2


def test_work_of_other_buckets_is_not_on_it(tmp_path: Path, run: Run) -> None:
    def wasted(row: Row) -> Row:
        again = isinstance(row, Call) and row.kind == "decide"
        return replace(row, bucket="setup", phase=None) if again else row

    less = row_for(rewritten(tmp_path, wasted), "mem0")
    assert row_for(run, "mem0")["llm_tokens"] - less["llm_tokens"] == 4 * 510


def test_bytes_per_source_byte(run: Run) -> None:
    row = row_for(run, "mem0")
    assert row["disk_bytes"] == 210_000 + 40_960
    assert row["disk_per_source_byte"] == pytest.approx(250_960 / SOURCE_BYTES)
    assert pd.isna(row["written_bytes"]) and pd.isna(row["written_per_source_byte"])


def test_unknown_source_bytes_give_no_ratio(tmp_path: Path) -> None:
    row = row_for(agentmem.load(write_run(tmp_path)), "mem0")
    assert row["disk_bytes"] == 250_960 and pd.isna(row["disk_per_source_byte"])


def reading(at_s: float, written: int | None, pid: int = 7) -> Sample:
    return Sample(at_s, "worker:mem0", pid, at_s, 1, None, None, 0, written, 0.0, 1)


def mem0_windows(rows: list[Row], phase: str) -> list[Window]:
    return [r for r in rows if isinstance(r, Window) and r.system == "mem0" and r.phase == phase]


def test_bytes_written_are_those_of_construction(tmp_path: Path) -> None:
    def watched(rows: list[Row]) -> list[Row]:
        """20,000 bytes in each of four windows, and 1,000 between them that are nobody's."""
        samples, total = [reading(0.0, 500)], 500
        for window in mem0_windows(rows, "construction"):
            total += 1_000
            samples.append(reading(window.start_s, total))
            total += 20_000
            samples.append(reading(window.end_s, total))
        return [*rows, *samples]

    run = agentmem.load(write_run(tmp_path, lambda rows: watched([known_bytes(r) for r in rows])))
    row = row_for(run, "mem0")
    assert row["written_bytes"] == pytest.approx(80_000)
    assert row["written_per_source_byte"] == pytest.approx(80_000 / SOURCE_BYTES)


def test_a_construction_too_short_for_the_sampler_leaves_bytes_unknown(tmp_path: Path) -> None:
    def quick(rows: list[Row]) -> list[Row]:
        samples = [reading(0.0, 500), reading(99.0, 9_999)]
        return [*(known_bytes(r) for r in rows), *(replace(s, role="worker:bm25") for s in samples)]

    assert pd.isna(row_for(agentmem.load(write_run(tmp_path, quick)), "bm25")["written_bytes"])


def test_a_process_that_does_not_tell_leaves_bytes_unknown(tmp_path: Path) -> None:
    silent = agentmem.load(write_run(tmp_path, lambda rows: [*rows, reading(1.0, None)]))
    assert pd.isna(row_for(silent, "mem0")["written_bytes"])


def test_windows_that_hold_the_bytes_are_exact_however_short(tmp_path: Path) -> None:
    def counted(row: Row) -> Row:
        short = isinstance(row, Window) and row.system == "bm25" and row.phase == "construction"
        return replace(known_bytes(row), worker_write_bytes=4096) if short else known_bytes(row)

    row = row_for(rewritten(tmp_path, counted), "bm25")
    assert row["written_bytes"] == 4 * 4096
    assert row["written_per_source_byte"] == pytest.approx(4 * 4096 / SOURCE_BYTES)


def test_every_column_of_the_write_path_is_explained(run: Run) -> None:
    page = Path(__file__).parents[2] / "docs" / "validity.md"
    text = page.read_text(encoding="utf-8")
    plain = ("system", "title", "units", "questions", "tokens_missing", "construction_s")
    for column in (c for c in write_path(run) if c not in plain):
        assert f"`{column}`" in text, column


def test_amortised_cost(run: Run) -> None:
    row = row_for(run, "mem0")
    built = run.phases[run.phases["system"].eq("mem0") & run.phases["phase"].eq("construction")]
    assert row["s_per_unit"] == pytest.approx(built["wall_s"].sum() / 4)
    assert row["build_s_per_question"] == pytest.approx(built["wall_s"].sum() / 10)
    total = row["build_s_per_question"] + row["answer_s_per_question"]
    assert row["amortised_s_per_question"] == pytest.approx(total)
    assert row["llm_per_unit"] == pytest.approx(6036 / 4)


def reported(row: Row) -> Row:
    """The attempt that answered 429 told its tokens after all."""
    if isinstance(row, Call) and row.status == 429:
        return replace(row, input_tokens=900, output_tokens=10)
    return row


def test_questions_until_it_pays(tmp_path: Path) -> None:
    run = rewritten(tmp_path, reported)
    # Long context reads 1,460 and writes 10 per question, Mem0 320 and 10.
    expected = (6036 + 910) / ((1460 + 10) - (320 + 10))
    assert row_for(run, "mem0")["pays_after_tokens"] == pytest.approx(expected)
    assert row_for(run, "bm25")["pays_after_tokens"] == 0.0
    assert pd.isna(row_for(run, "long_context")["pays_after_tokens"])


def test_it_never_pays_where_each_question_costs_more(tmp_path: Path) -> None:
    def longer(row: Row) -> Row:
        told = reported(row)
        if isinstance(told, Call) and told.system == "mem0" and told.kind == "answer":
            return replace(told, input_tokens=9000, uncached_tokens=9000)
        return told

    assert row_for(rewritten(tmp_path, longer), "mem0")["pays_after_tokens"] == NEVER


def test_unreported_tokens_leave_it_open(run: Run) -> None:
    assert pd.isna(row_for(run, "mem0")["pays_after_tokens"])


def test_a_system_that_stored_nothing_pays_nothing_back(tmp_path: Path) -> None:
    def empty(row: Row) -> Row:
        row = reported(row)
        return replace(row, added=0, updated=0) if isinstance(row, Unit) else row

    assert pd.isna(row_for(rewritten(tmp_path, empty), "mem0")["pays_after_tokens"])


def test_time_to_visible(tmp_path: Path) -> None:
    told = {"mem0": 7.0, "bm25": 0.0}

    def visible(row: Row) -> Row:
        if not isinstance(row, Unit):
            return row
        return replace(row, construct_s=2.0, visible_s=told.get(row.system))

    def with_flush(rows: list[Row]) -> list[Row]:
        changed = [visible(r) for r in rows]
        last = next(r for r in changed if isinstance(r, Window) and r.system == "embedrag")
        flush = replace(last, unit="flush", start_s=900.0, end_s=904.0, quiet_s=1.0)
        return [*changed, flush]

    run = agentmem.load(write_run(tmp_path, with_flush))
    seconds = {s: row_for(run, s)["visible_p50_s"] for s in ("mem0", "bm25", "embedrag")}
    assert seconds == {"mem0": 7.0, "bm25": 2.0, "embedrag": pytest.approx(5.0)}
    assert row_for(run, "embedrag")["visible_told"] == 0


def test_a_run_without_units_has_an_empty_table(tmp_path: Path) -> None:
    table = write_path(agentmem.load(write_run(tmp_path, lambda rows: [])))
    assert table.empty and "llm_per_source_token" in table
