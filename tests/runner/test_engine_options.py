"""What a profile asks of the engine reaches its process, its calls, the manifest and identity."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentmem import profile
from agentmem.engine import arguments
from agentmem.engine.__main__ import parser
from agentmem.errors import UsageError
from agentmem.profile import EngineSpec
from agentmem.runner import engine, parts
from agentmem.runner.engine import ServerFacts, without_effect
from agentmem.runner.progress import Silent
from agentmem.runner.run import RunOptions, run
from tests.engine.server.real import toy
from tests.fake import FakeUpstream
from tests.runner.conftest import profile_data

SERVED = ServerFacts("http://h/v1", "foreign", "m", "e", 8, 99, None, None, None, None)


def spec(**keys: Any) -> EngineSpec:
    return profile.parse({"engine": keys}).engine


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(toy(tmp_path / "toy"))


def read(model: str, **keys: Any) -> Any:
    """What the engine's own command line makes of a profile's keys."""
    given = engine.options(spec(model=model, embedder=model, **keys))
    return arguments.engine_options(parser().parse_args(given))


def test_every_key_reaches_the_engines_command_line(model: str, tmp_path: Path) -> None:
    plain = read(model)
    assert (plain["mode"], plain["kv"], plain["backend"]) == ("bf16", "auto", "auto")
    assert plain["drafts"] and not plain["invariant"] and plain["calibration"] is None
    keys = {"mode": "fp8", "kv": "int8", "backend": "torch", "invariant": True, "drafts": False}
    set_ = read(model, calibration=str(tmp_path), threads=3, window_tokens=512, **keys)
    assert {k: set_[k] for k in keys} == keys
    assert (set_["calibration"], set_["threads"], set_["window"]) == (tmp_path, 3, 512)


def test_a_calibration_that_is_not_there(model: str) -> None:
    with pytest.raises(UsageError, match="no folder gone; `agentmem engine calibrate"):
        read(model, mode="fp8", calibration="gone")


def test_a_calibrations_content_is_a_fact(tmp_path: Path) -> None:
    asked = spec(mode="fp8", calibration=str(tmp_path))
    (tmp_path / "scales").write_bytes(b"1")
    one = engine._scales(asked)
    (tmp_path / "scales").write_bytes(b"2")
    assert one != engine._scales(asked) and engine._scales(spec()) is None


@pytest.mark.parametrize(
    ("keys", "ours", "says"),
    [
        ({}, False, None),
        ({"mode": "int8", "drafts": False}, False, "engine.mode, engine.drafts have no effect"),
        ({"reuse": False}, False, "engine.reuse has no effect: the server at http://h/v1"),
        ({"reuse": False, "drafts": False}, True, None),
        ({"kv": "int8", "reuse": False}, True, "engine.kv has no effect"),
        ({"traffic": {"construction": "interactive"}}, False, "engine.traffic has no effect"),
        ({"traffic": {"construction": "interactive"}}, True, None),
    ],
)
def test_a_foreign_server_gets_one_clear_notice(
    keys: dict[str, Any], ours: bool, says: str | None
) -> None:
    served = ServerFacts("http://h/v1", "foreign", *["m", "e", 8, 99, *[None] * 4], ours=ours)
    told = without_effect(spec(**keys), served)
    assert told is None if says is None else told is not None and says in told


def test_calls_carry_what_only_our_engine_takes() -> None:
    asked = profile.parse({"engine": {"reuse": False, "drafts": False}})
    counter = type("Counter", (), {"count": len, "name": "c"})()

    def ways(ours: bool) -> dict[str, Any]:
        served = ServerFacts("", "foreign", *["m", "e", 8, 99, *[None] * 4], ours=ours)
        return dict(parts.gateway_options(asked, served, counter, None, RunOptions()).ways)

    assert ways(True) == {"reuse": False, "drafts": False} and ways(False) == {}


def test_the_manifest_says_what_had_no_effect(fake: FakeUpstream, tmp_path: Path) -> None:
    data = profile_data(fake.url, ["bm25"])
    data["engine"] |= {"mode": "int8", "traffic": {"construction": "interactive"}}
    run(profile.parse(data), RunOptions(tmp_path / "r"), Silent())
    manifest = json.loads((tmp_path / "r" / "manifest.json").read_text())
    note = manifest["notes"][0]
    assert note.startswith("engine.mode, engine.traffic have no effect")
    assert manifest["profile"]["engine"]["mode"] == "int8"
    assert manifest["engine"]["ours"] is False and manifest["engine"]["kv"] is None


def test_no_two_runs_share_sessions_on_one_server(fake: FakeUpstream, tmp_path: Path) -> None:
    spec = profile.parse(profile_data(fake.url, ["bm25"]))
    for parent in ("a", "b"):
        run(spec, RunOptions(tmp_path / parent / "same"), Silent())
    served = fake.bill.of("chat")
    salts = [r.headers["x-cache-salt"] for r in served if "x-cache-salt" in r.headers]
    sessions = {r.headers.get("x-session-id") for r in served} - {None}
    assert len({s.split(":")[0] for s in salts}) == 2
    # two runs, each with a system and two references, all interactive
    assert len(sessions) == 6 and all(str(s).endswith(".interactive") for s in sessions)
