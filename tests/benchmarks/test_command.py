"""The command of the engine benchmark: options, one tiny run, what is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.engine_parts import ours
from benchmarks.engine_parts.prompts import prompts
from benchmarks.engine_parts.wire import UnavailableError
from tests.benchmarks.command import engine, tiny_model

FIELDS = {"work", "model", "mode", "ours", "best_peer", "peer", "ratio", "target", "unit", "spread"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--work", "prefil"], "no work is called 'prefil'"),
        (["--peers", "ollama"], "no peer is called 'ollama'"),
        (["--modes", "int3"], "no mode is called 'int3'"),
        (["--models", "no-such-model"], "neither a model nor a path"),
        (["--rounds", "0"], "must be 1 at least"),
    ],
)
def test_a_wrong_option_is_told_in_a_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        engine.main(arguments)
    assert said in capsys.readouterr().err


def test_what_load_does_not_take_yet_is_a_reason_unless_it_can_do_without() -> None:
    wanted = {"mode": "bf16", "drafts": False}
    assert ours.load_arguments({"mode": 0}, wanted) == {"mode": "bf16"}
    with pytest.raises(UnavailableError, match="no 'max_running' yet"):
        ours.load_arguments({"mode": 0}, {"max_running": 8})


def test_a_run_without_peers_measures_and_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTMEM_CACHE", str(tmp_path / "cache"))
    model, out = str(tiny_model(tmp_path / "tiny")), tmp_path / "rows.json"
    arguments = ["--models", model, "--peers", "vllm", "--modes", "bf16", "--rounds", "2"]
    arguments += ["--quick", "--threads", "1", "--work", "decode,second-turn"]
    arguments += ["--logs", str(tmp_path / "logs"), "--json", str(out)]
    assert engine.main(arguments) == 0
    told = json.loads(out.read_text())
    assert told["status"] == "complete"
    rows = {(row["work"], row["mode"]): row for row in told["rows"]}
    assert all(set(row) >= FIELDS for row in told["rows"])
    decode = rows["decode 16", "bf16"]
    assert decode["ours"] > 0
    assert decode["ratio"] is None
    assert "not installed" in decode["peers"]["vllm"]["missing"]
    assert len(decode["conditions"]) == len(decode["rounds"]["ours"]) == 2
    assert decode["conditions"][0]["bandwidth_gb_s"] > 0
    floor = rows["decode 16 of the read floor", "bf16"]
    assert 0 < floor["ratio"] < 1
    assert rows["second turn 128 + 16, against no reuse", "bf16"]["ratio"] > 0
    assert rows["decode 16", "int8"]["status"] == "not available"
    assert "left out by --modes" in rows["decode 16", "int8"]["reason"]
    assert "not available" in capsys.readouterr().out


def test_prompts_depend_on_the_seed_alone() -> None:
    assert prompts(2, 5, seed=3) == prompts(2, 5, seed=3) != prompts(2, 5, seed=4)


@pytest.mark.slow
def test_works_of_our_own_run_on_a_tiny_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTMEM_CACHE", str(tmp_path / "cache"))
    model, out = str(tiny_model(tmp_path / "tiny")), tmp_path / "rows.json"
    arguments = ["--models", model, "--peers", "none", "--rounds", "2", "--quick"]
    arguments += ["--threads", "1", "--work", "drafts,memory,queue,classes"]
    assert engine.main([*arguments, "--json", str(out)]) == 0
    rows = {row["work"]: row for row in json.loads(out.read_text())["rows"]}
    assert "tokens identical" in rows["drafts rejected"]["notes"]
    assert rows["peak memory, 8 x 128"]["ours"] > 0
    assert len(rows["step with 1,000 queued"]["rounds"]["ours, 8 queued"]) == 2
    for row in rows.values():
        assert row["status"] == "measured", row
        assert (row["ratio"] is None) == (row["work"] == "peak memory, 8 x 128")
