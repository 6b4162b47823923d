"""Rows: medians, ratios in which higher is better, perplexities, what is seen."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from benchmarks.engine_parts.cases import GEMMA, GROUPS, QWEN, SMOLLM2, Against, cases
from benchmarks.engine_parts.rows import Row, compare, not_available, perplexities
from benchmarks.engine_parts.screen import in_words, tables

Figures = list[float | None]


def row(target: float | None = None) -> Row:
    return Row("prefill 512", GEMMA, "bf16", "tok/s", target=target)


def test_the_best_rival_by_median_is_compared_round_by_round() -> None:
    ours: Figures = [200.0, 100.0, 400.0]
    rivals: dict[str, Figures] = {"slow": [50.0, 999.0, 50.0], "fast": [100.0, 80.0, 100.0]}
    found = compare(row(target=1.5), ours, rivals, rate=True)
    assert (found.ours, found.peer, found.best_peer) == (200.0, "fast", 100.0)
    assert found.ratio == 2.0  # of 2, 1.25 and 4
    assert found.ratio_range == (1.25, 4.0)
    assert found.spread == 1.5
    assert found.met is True
    assert found.peers["slow"]["median"] == 50.0


def test_times_and_bytes_turn_round_so_that_higher_is_better() -> None:
    found = compare(row(target=3), [10.0], {"a": [20.0], "b": [30.0]}, rate=False)
    assert (found.peer, found.ratio, found.met) == ("a", 2.0, False)


def test_a_round_that_failed_is_left_out_on_both_sides() -> None:
    found = compare(row(), [None, 10.0, 30.0], {"a": [1.0, None, 10.0]}, rate=True)
    assert (found.ours, found.best_peer, found.ratio) == (20.0, 5.5, 3.0)


def test_without_rivals_there_is_a_figure_and_no_ratio() -> None:
    found = compare(row(target=1), [5.0], {}, rate=True)
    assert (found.ours, found.ratio, found.met) == (5.0, None, None)
    assert found.reason == "nothing to compare with"


def test_without_figures_of_ours_the_row_is_not_available() -> None:
    found = compare(row(), [None], {"a": [1.0]}, rate=True)
    assert found.status == "not available"
    assert found.ratio is None


def test_perplexities_are_found_wherever_they_stand() -> None:
    told = {
        "model": "a",
        "rows": [{"mode": "bf16", "perplexity": 20, "loss": 0.0}],
        "more": {"model": "b", "modes": [{"mode": "int8", "perplexity": 21.5}]},
    }
    assert perplexities(told) == {("a", "bf16"): (20.0, 0.0), ("b", "int8"): (21.5, None)}
    assert perplexities([{"mode": "fp8", "perplexity": 1.0, "loss": None}]) == {
        ("", "fp8"): (1.0, None)
    }


def test_every_row_is_seen_with_its_reason_or_figures() -> None:
    shown = [
        compare(row(target=1.5), [1234.0], {"llama.cpp": [617.0]}, rate=True),
        not_available("decode 128", SMOLLM2, "int8", "tok/s", "no engine mode 'int8'"),
    ]
    out = io.StringIO()
    console = Console(file=out, width=150)
    for table in tables(shown):
        console.print(table)
    text = out.getvalue()
    for word in ("1,234 tok/s", "617 llama.cpp", "2.00", "1.5 met", "no engine mode 'int8'"):
        assert word in text
    assert GEMMA in text
    assert SMOLLM2 in text
    assert "no engine mode" in in_words(shown[1])


def held(work: str, model: str, mode: str, quick: bool = False) -> list[Against]:
    (case,) = [c for c in cases(GROUPS, quick) if c.work == work]
    return list(case.against(model, mode))


@pytest.mark.parametrize(
    ("work", "model", "mode", "target"),
    [
        ("prefill 512", GEMMA, "bf16", 1.5),
        ("prefill 512", SMOLLM2, "bf16", 1.25),
        ("prefill 512", QWEN, "bf16", 1.0),
        ("prefill 2048", GEMMA, "bf16", 1.3),
        ("prefill 2048", GEMMA, "int8", 1.8),
        ("decode 128", GEMMA, "int8", 1.7),
        ("decode 128", GEMMA, "bf16", 3.0),
        ("decode x 8", GEMMA, "int8", 3.0),
        ("decode x 8", GEMMA, "fp8", 2.5),
        ("decode x 8", SMOLLM2, "fp8", 1.0),
        ("second turn 2000 + 32", GEMMA, "int8", 20.0),
    ],
)
def test_targets_stand_beside_their_rows(work: str, model: str, mode: str, target: float) -> None:
    assert held(work, model, mode)[0].target == target


def test_bf16_decoding_is_compared_with_bf16_and_int8_with_all_and_the_floor() -> None:
    assert held("decode 128", GEMMA, "bf16")[0].rivals == "bf16 peers"
    everyone, floor = held("decode 128", GEMMA, "int8")
    assert (everyone.rivals, floor.rivals, floor.target) == ("peers", "floor", 0.75)


def test_small_sizes_are_held_to_nothing_and_named_by_their_own_sizes() -> None:
    for case in cases(GROUPS, quick=True):
        assert "512" not in case.work
        for mode in case.modes:
            assert [a.target for a in case.against(GEMMA, mode)] == [None] * len(
                case.against(GEMMA, mode)
            )


def test_all_engines_get_the_same_ids_and_every_round_new_ones() -> None:
    (case,) = [c for c in cases(("prefill",), quick=False) if c.work == "prefill 512 x 8"]
    first, again, other = case.given(0, 49_152), case.given(0, 49_152), case.given(1, 49_152)
    assert first == again != other
    assert [len(prompt) for prompt in first["ids"]] == [512] * 8
    assert len({tuple(prompt) for prompt in first["ids"]}) == 8
    small = case.given(0, 259)["ids"]
    assert min(map(min, small)) >= 0 and max(map(max, small)) < 259
    assert case.value({"s": 2.0}) == 2048.0
