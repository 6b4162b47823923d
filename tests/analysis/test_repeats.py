"""A run that went round twice: its rounds apart, its means, and no sum that passes for one."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

import agentmem
from agentmem.analysis.load import REFERENCES, Run
from agentmem.analysis.repeats import mean_end_to_end, rounds
from agentmem.analysis.tables import end_to_end
from agentmem.records import Failure, Query, Row
from agentmem.report.console import summary
from agentmem.report.content import Content, gather
from agentmem.report.figures import draw_all
from agentmem.report.html import html
from agentmem.report.plots.rows import records
from tests.analysis.build_run import write_run
from tests.analysis.planted import slower


def twice(rows: list[Row]) -> list[Row]:
    """All again but the references: half as fast to answer, question 1 wrong, no failure."""
    again = [
        _again(row)
        for row in slower("generation", 1.5)(rows)
        if getattr(row, "system", None) not in (None, *REFERENCES) and not isinstance(row, Failure)
    ]
    return [*rows, *again]


def _again(row: Row) -> Row:
    changes: dict[str, Any] = {"scope": f"{row.scope}.r1", "repeat": 1}  # type: ignore[union-attr]
    if hasattr(row, "call_id"):
        changes["call_id"] = f"{row.call_id}r1"
        if hasattr(row, "logical_id"):
            changes["logical_id"] = f"{row.logical_id}r1"
    if isinstance(row, Query) and row.question_id == "q2":
        changes["answer"] = "Nowhere"
    return replace(row, **changes)


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return agentmem.load(write_run(tmp_path_factory.mktemp("once")))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return agentmem.load(write_run(tmp_path_factory.mktemp("twice"), twice))


@pytest.fixture(scope="module")
def content(run: Run) -> Content:
    return gather([run])


def by_system(table: pd.DataFrame) -> pd.DataFrame:
    return table.set_index("system")


def test_a_round_is_what_a_run_of_its_own_would_be(once: Run, run: Run) -> None:
    first, second = rounds(run)
    assert rounds(once) == (once,)
    pd.testing.assert_frame_equal(end_to_end(first), end_to_end(once))
    alone, again = by_system(end_to_end(once)), by_system(end_to_end(second))
    assert set(again.index) == set(alone.index) - set(REFERENCES)
    assert again.loc["mem0", "input_tokens"] == alone.loc["mem0", "input_tokens"]
    assert again.loc["bm25", "correct"] == alone.loc["bm25", "correct"] - 1
    assert (len(first.failures), len(second.failures)) == (1, 0)


def test_means_are_of_one_round_and_unknown_where_one_is(once: Run, run: Run) -> None:
    first, second = (by_system(end_to_end(part)) for part in rounds(run))
    mean = by_system(mean_end_to_end(run))
    for column in ("wall_s", "cpu_s", "energy_j", "chat_calls", "questions", "correct", "f1"):
        expected = (first.loc["bm25", column] + second.loc["bm25", column]) / 2
        assert mean.loc["bm25", column] == pytest.approx(expected), column
    row = mean.loc["bm25"]
    assert row["j_per_correct"] == pytest.approx(row["energy_j"] / row["correct"])
    spans = [t.loc["bm25", "accuracy_high"] - t.loc["bm25", "accuracy_low"] for t in (first, mean)]
    assert spans[1] == pytest.approx(spans[0], abs=0.02), "asking again makes no interval smaller"
    pd.testing.assert_series_equal(
        mean.loc["no_memory"], by_system(end_to_end(once)).loc["no_memory"], check_dtype=False
    )
    blind = replace(run, windows=run.windows.assign(
        worker_cpu_s=run.windows["worker_cpu_s"].where(run.windows["repeat"].eq(0))
    ))  # fmt: skip
    assert pd.isna(by_system(mean_end_to_end(blind)).loc["bm25", "cpu_s"])


SUMMED = (
    "t3_end_to_end", "quality", "f2_tradeoff", "f3_phase_times", "phases", "wall_states",
    "calls_by_kind", "write_path", "amortised", "construction", "footprints", "validity_rows",
    "truths",
)  # fmt: skip


def test_every_table_of_sums_has_a_row_per_repeat(once: Run, content: Content) -> None:
    alone = gather([once])
    for key in SUMMED:
        frame = content.sheet(key).frame
        assert content.sheet(key).columns[1].heading == "repeat", key
        first = frame[frame["repeat"] == 1].drop(columns="repeat").reset_index(drop=True)
        expected = alone.sheet(key).frame
        pd.testing.assert_frame_equal(first, expected, check_dtype=False, obj=key)
        second = frame[frame["repeat"] == 2]
        assert len(second) and len(first) + len(second) == len(frame), key
        assert "repeat" not in alone.sheet(key).frame
        order = list(dict.fromkeys(frame["system"]))
        assert list(frame["system"]) == sorted(frame["system"], key=order.index), key
    for key in ("checks", "validity", "t1_taxonomy"):
        assert "repeat" not in content.sheet(key).frame


def test_the_page_says_how_to_read_it(content: Content) -> None:
    text = html(content, ())
    assert "Every system ran 2 times: figures in these sentences are means of one repeat" in text
    assert "<dt>repeats</dt><dd>2</dd>" in text
    assert "Most answers right: Long context with 5.5 of 10." in text


@pytest.mark.slow
def test_figures_name_the_repeat(content: Content) -> None:
    drawn = {d.key: d for d in draw_all(content)}
    assert set(drawn) == {"f2_tradeoff", "f3_phases", "walls", "f4_energy", "tokens"}
    labels = [row["label"] for row in records(content, "f3_phase_times")]
    assert labels[:2] == ["Long context (1)", "Long context (2)"] and len(set(labels)) == 10


@pytest.mark.parametrize("width", [80, 200])
def test_the_console_shows_means_and_their_spread(run: Run, width: int) -> None:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(summary(run))
    lines = console.export_text().splitlines()
    text = " ".join(" ".join(lines).split())
    assert max(map(len, lines)) <= width
    assert "means of one of 2 repeats" in text and "of 2 repeats" in text
    bm25 = " ".join(" ".join(x for x in lines if x.startswith("BM25")).split())
    assert "4.5 of 10" in bm25 and "4 – 5" in bm25
    assert "Accounts of all 2 repeats" in text and "does NOT add up" not in text
    mem0 = " ".join(x for x in lines if x.startswith("Mem0 ")).split()
    assert "6,036" in mem0 and "0.5" in mem0, "tokens of one repeat, and half a failure"
