"""Options of `agentmem serve` and of the engine's own process: the same, and all of them arrive."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from agentmem.cli import main as cli
from agentmem.engine import __main__ as process
from agentmem.engine import arguments
from agentmem.engine.kv.layout import GroupSpec, KVPages
from agentmem.errors import EngineError, UsageError


def parsed(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    arguments.add_engine(parser)
    arguments.add_limits(parser)
    return parser.parse_args(given)


def test_what_is_stated_arrives():
    args = parsed(
        "--mode", "int8", "--kv", "int8", "--backend", "torch", "--invariant", "--no-drafts",
        "--threads", "2", "--window", "512", "--cache-mb", "64", "--session-ttl", "9",
        "--max-running", "4", "--step-tokens", "128", "--max-background-tokens", "1000",
        "--calibration", "scales", "--session-ledger", "notes",
    )  # fmt: skip
    assert arguments.engine_options(args) == {
        "mode": "int8", "kv": "int8", "backend": "torch", "invariant": True, "drafts": False,
        "threads": 2, "window": 512, "cache_bytes": 64 * 2**20, "session_ttl_s": 9.0,
        "max_running": 4, "step_tokens": 128, "max_queued_background_tokens": 1000,
        "calibration": Path("scales"), "session_ledger": Path("notes"),
    }  # fmt: skip
    args = parsed("--max-body-mb", "1", "--max-concurrency", "3", "--timeout", "5", "--grace", "0")
    limits = arguments.limits(args, 30.0)
    assert (limits.max_body_bytes, limits.max_concurrency) == (2**20, 3)
    assert (limits.timeout_s, limits.grace_s) == (5.0, 0.0)
    assert arguments.limits(parsed(), 30.0).grace_s == 30.0


def test_keys_of_all_three_places(tmp_path):
    file = tmp_path / "keys"
    file.write_text("b\n")
    args = parsed("--api-key", "a", "--api-key-file", str(file))
    assert arguments.keys(args, {"AGENTMEM_API_KEYS": "c,d"}) == ["a", "c", "d", "b"]
    assert arguments.keys(parsed(), {}) == []
    assert arguments.keys(parsed(), {"AGENTMEM_API_KEYS": ""}) == []


def test_a_variable_without_a_key_opens_nothing():
    with pytest.raises(UsageError, match="no API key"):
        arguments.keys(parsed(), {"AGENTMEM_API_KEYS": " , "})


@pytest.mark.parametrize(
    "given",
    [
        *(("--cache-mb", value) for value in ("0", "nan", "inf", "1e300")),
        *(("--session-ttl", value) for value in ("-1", "nan", "inf", "3601")),
        *(("--max-body-mb", value) for value in ("0", "-1", "nan", "inf")),
        ("--max-running", "0"),
        ("--step-tokens", "-1"),
        ("--max-background-tokens", "-1"),
    ],
)
def test_what_cannot_be(given):
    with pytest.raises(UsageError, match=given[0]):
        arguments.engine_options(parsed(*given))
        arguments.limits(parsed(*given), 1.0)


def test_more_memory_than_there_is(tmp_path):
    for blocks in (2**40, 2**70):
        with pytest.raises(EngineError, match="smaller cache"):
            KVPages.empty(GroupSpec((0,), 1, 64), blocks, 16, "bf16")


def test_options_are_those_that_the_engine_takes():
    import inspect

    from agentmem.engine.core import EngineCore
    from agentmem.engine.options import EngineOptions

    taken = inspect.signature(EngineCore.load).parameters
    assert set(EngineOptions.__annotations__) <= set(taken)
    for name, value in arguments.engine_options(parsed()).items():
        if name != "cache_bytes":
            assert value == taken[name].default, f"{name} has another default there"


def test_both_commands_have_them_all_and_explain_them(capsys):
    with pytest.raises(SystemExit):
        cli.main(["serve", "--help"])
    served = capsys.readouterr().out
    known = set(re.findall(r"--[a-z-]+", process.parser().format_help()))
    parser = argparse.ArgumentParser()
    arguments.add_engine(parser)
    arguments.add_limits(parser)
    for action in parser._actions:
        assert action.help, action
        assert set(action.option_strings) & known
        assert action.option_strings[-1] in served
    for word in ("X-Session-ID", "cache_salt", "background", "examples:", "/metrics"):
        assert word in served
