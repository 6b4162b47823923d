"""The engine's soak: what it calls growth, stuck and a time to first token; one tiny run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.engine_parts.soak_clients import Answer
from benchmarks.engine_parts.soak_server import Reading, parse, total
from benchmarks.engine_parts.soak_verdict import growth, stuck, summary
from tests.benchmarks.command import soak, tiny_model

TEXT = """\
# HELP agentmem:kv_cache_blocks Blocks of keys and values.
# TYPE agentmem:kv_cache_blocks gauge
agentmem:kv_cache_blocks{model_name="m",state="used"} 3
agentmem:kv_cache_blocks{model_name="m",state="free"} 5.0
agentmem:sessions{model_name="m"} 2
process_start 1e9
"""


def reading(at_s: float, **fields: Any) -> Reading:
    plain: dict[str, Any] = {
        "phase": "pause", "quiet": True, "memory_mb": 500.0, "threads": 20, "files": 30,
        "running": 0.0, "waiting": 0.0, "blocks_used": 0.0, "blocks_cached": 96.0,
        "blocks_free": 4.0, "sessions": 3.0, "cpu_s": at_s,
    }  # fmt: skip
    return Reading(at_s=at_s, **plain | fields)


def answer(phase: str, ttft_s: float | None, ended: str = "done") -> Answer:
    return Answer(phase, "interactive", ended, ttft_s, 1.0)


def grew(readings: list[Reading]) -> list[str]:
    return [one.what for one in growth(readings) if one.grew]


def test_gauges_are_read_by_name_and_label() -> None:
    found = parse(TEXT)
    assert total(found, "kv_cache_blocks") == 8
    assert total(found, "kv_cache_blocks", 'state="used"') == 3
    assert total(found, "sessions") == 2
    assert total(found, "session") == 0


def test_steady_series_do_not_grow() -> None:
    assert grew([reading(n, memory_mb=500 + n % 3) for n in range(12)]) == []


@pytest.mark.parametrize("what", ["files", "threads", "blocks_used", "memory_mb"])
def test_a_series_that_climbs_is_growth(what: str) -> None:
    step = 10 if what == "memory_mb" else 1
    readings = [reading(n, **{what: 500 + step * n}) for n in range(12)]
    assert grew(readings) == [what]


def test_memory_may_climb_until_the_cache_is_full() -> None:
    filling = [reading(n, memory_mb=100 * n, blocks_cached=n, blocks_free=99) for n in range(8)]
    full = [reading(8 + n, memory_mb=800) for n in range(6)]
    assert grew(filling + full) == []


def test_busy_moments_are_not_judged() -> None:
    readings = [reading(n, quiet=n % 2 == 0, files=30 + (n % 2) * n) for n in range(24)]
    assert grew(readings) == []


def test_p95_is_compared_with_p95_alone_over_answers_that_ended() -> None:
    answers = [answer("alone", 1.0), answer("alone", 1.0), answer("classes", 1.2)]
    answers += [answer("no classes", 4.0), answer("classes", 99.0, "aborted")]
    answers += [Answer("classes", "background", "done", 50.0, 60.0)]
    told = summary(answers, [])
    assert told["ttft"]["classes"] == {"count": 1, "p50_s": 1.2, "p95_s": 1.2}
    assert told["p95_ratio"] == pytest.approx({"classes": 1.2, "no classes": 4.0})
    assert summary([answer("classes", 1.0)], [])["p95_ratio"]["classes"] is None


def test_what_never_ended_is_stuck_for_client_and_server() -> None:
    assert stuck([answer("classes", 1.0)], reading(9)) == []
    assert len(stuck([answer("classes", None, "stuck")], reading(9))) == 1
    assert "2 run" in stuck([], reading(9, running=2.0))[0]
    assert "1 blocks" in stuck([], reading(9, blocks_used=1.0))[0]


def test_every_kind_of_trouble_is_a_problem() -> None:
    good = {"grew": [], "stuck": [], "failed": {}, "server_exit_code": 0}
    assert soak.problems(good, crashed=False) == []
    for bad in ({"grew": ["files"]}, {"stuck": ["x"]}, {"failed": {"500": 2}}):
        assert len(soak.problems(good | bad, crashed=False)) == 1
    assert soak.problems(good | {"server_exit_code": 1}, crashed=False)
    assert soak.problems(good | {"server_exit_code": -9}, crashed=True)


@pytest.mark.slow
def test_a_tiny_soak_ends_with_nothing_stuck_or_failed(tmp_path: Path) -> None:
    model, out = tiny_model(tmp_path / "tiny"), tmp_path / "soak.json"
    arguments = ["--model", str(model), "--minutes", "0.6", "--slice", "3", "--prompt", "60"]
    arguments += ["--cache-mb", "1", "--pause", "0.1", "--threads", "1", "--json", str(out)]
    soak.main(arguments)
    told = json.loads(out.read_text())
    # half a minute is no time to judge memory in: caches of the runtime still fill
    assert [p for p in told["problems"] if p != "memory_mb grew"] == []
    assert all(told["ttft"][phase]["count"] > 0 for phase in ("alone", "classes", "no classes"))
    assert told["answers"]["background"]["done"] > 0
    assert told["server_exit_code"] == 0
