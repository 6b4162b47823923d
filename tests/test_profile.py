"""Profiles: every key known, typed and recorded; mistakes named with the nearest key."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from agentmem import profile
from agentmem.errors import DataError, UsageError
from agentmem.workloads.base import WorkloadSpec
from agentmem.workloads.registry import build


@pytest.mark.parametrize(
    "path", sorted(profile.profiles_dir().glob("*.toml")), ids=lambda p: p.stem
)
def test_a_bundled_profile_loads(path: Path) -> None:
    loaded = profile.load(path.stem)
    assert loaded.name == path.stem
    assert loaded.description


def test_every_bundled_profile_is_in_the_documentation() -> None:
    page = profile.profiles_dir().parent / "docs" / "running.md"
    text = page.read_text(encoding="utf-8")
    for path in profile.profiles_dir().glob("*.toml"):
        assert f"`agentmem run {path.stem}`" in text, path.stem


def test_factconsolidation_asks_ten_questions_of_chunks() -> None:
    spec = WorkloadSpec.from_mapping(profile.load("factconsolidation").workload)
    assert (spec.unit, spec.chunk_tokens, spec.questions) == ("chunk", 512, 10)
    try:
        (history,) = build(spec).histories
    except DataError as error:
        pytest.skip(str(error))
    assert len(history.questions) == 10 and len(history.units) > 5


def test_overrides_reach_nested_keys() -> None:
    given = dict(map(profile.parse_setting, ["answer.k=5", "engine.model=other", "run.seed=1"]))
    loaded = profile.load("quickstart", given)
    assert (loaded.answer.k, loaded.engine.model, loaded.run.seed) == (5, "other", 1)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"anwser": {}}, "did you mean 'answer'"),
        ({"answer": {"max_token": 3}}, "did you mean 'max_tokens'"),
        ({"answer": {"k": "ten"}}, "answer.k must be a int"),
        ({"answer": {"k": True}}, "answer.k must be a int"),
        ({"answer": 3}, "answer must be a table"),
        ({"run": {"order": "random"}}, "one of listed, shuffled"),
        ({"systems": []}, "empty"),
        ({"systems": ["bm25", "bm25"]}, "twice"),
        ({"systems": "bm25"}, "must be a list"),
        ({"meters": {"w_per_core": [1.0]}}, "takes 3 values"),
        ({"meters": {"w_per_core": [8, 4, 2]}}, "rising"),
        ({"meters": {"w_per_core": [-1, 4, 8]}}, "rising"),
        ({"meters": {"hz": 0}}, "meters.hz must be at least 0.01 and at most 1,000; got 0"),
        ({"meters": {"hz": float("nan")}}, "meters.hz must be .* got nan"),
        ({"meters": {"hz": 10**400}}, "meters.hz must be"),
        ({"meters": {"contention_limit": -1}}, "contention_limit must be"),
        ({"answer": {"k": -1}}, "answer.k must be at least 1 .* got -1"),
        ({"answer": {"max_tokens": 0}}, "answer.max_tokens must be at least 1"),
        ({"limits": {"query_timeout_s": -1}}, "query_timeout_s must be at least 0.001"),
        ({"limits": {"unit_timeout_s": float("inf")}}, "unit_timeout_s must be .* got inf"),
        ({"limits": {"timeout_scale": 0}}, "timeout_scale must be"),
        ({"run": {"snapshot_every": 0}}, "snapshot_every must be at least 1; got 0"),
        ({"run": {"snapshot_every": 10**5000}}, "snapshot_every must be"),
        ({"run": {"quiet_s": -1}}, "quiet_s must be at least 0 "),
        ({"run": {"quiet_s": float("nan")}}, "quiet_s must be .* got nan"),
        ({"run": {"seed": 2**70}}, "run.seed must be"),
        ({"run": {"seed": 2**63}}, "run.seed must be"),
        ({"run": {"seed": -1}}, "run.seed must be at least 0; got -1"),
        ({"run": {"repeats": 10**11}}, "repeats must be at least 1 and at most 10,000"),
        ({"engine": {"threads": 10000}}, "threads must be at least 0 and at most 1,024"),
        ({"engine": {"window_tokens": 10}}, "leaves no room"),
        ({"engine": {"window_tokens": -10}}, "window_tokens must be at least 0"),
        ({"calls": {"temperature": -1}}, "temperature must be at least 0 and at most 2"),
        ({"engine": {"url": ""}}, "engine.url must be local or begin with http://"),
        ({"engine": {"url": "localhost:99"}}, "engine.url must be local"),
        ({"engine": {"embed_url": "ftp://x"}}, "engine.embed_url must be empty or begin"),
        ({"engine": {"model": " "}}, "engine.model is empty"),
        ({"engine": {"mode": "int3"}}, "engine.mode must be one of bf16, fp32, int8, fp8, int4"),
        ({"engine": {"kv": "fp4"}}, "engine.kv must be one of auto, bf16, int8"),
        ({"engine": {"backend": "cuda"}}, "engine.backend must be one of auto, torch, native"),
        ({"engine": {"drafts": "on"}}, "engine.drafts must be true or false; got 'on'"),
        ({"engine": {"reuse": 1}}, "engine.reuse must be true or false"),
        ({"engine": {"calibration": "d"}}, "serves engine.mode = \"fp8\"; it is 'bf16' here"),
        ({"engine": {"traffic": {"construct": "x"}}}, "did you mean 'construction'"),
        ({"engine": {"traffic": {"retrieval": "slow"}}}, "must be one of interactive, background"),
        ({"name": "../x"}, "name must not hold '/'"),
        ({"name": "a\0b"}, "control characters"),
        ({"name": ""}, "1 to 100 characters"),
    ],
)
def test_a_mistake_is_one_clear_line(data: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        profile.parse(data)
    assert "\n" not in str(caught.value)


def test_construction_is_background_work_unless_said_otherwise() -> None:
    plain = profile.Profile().engine.traffic
    assert (plain.construction, plain.retrieval, plain.generation) == (
        "background",
        "interactive",
        "interactive",
    )
    stated = profile.parse_setting("engine.traffic.construction=interactive")
    assert profile.load("quickstart", dict([stated])).engine.traffic.construction == "interactive"


def test_whole_numbers_pass_as_seconds() -> None:
    assert profile.parse({"run": {"quiet_s": 1}}).run.quiet_s == 1.0


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("systems = [")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, says in [
        (broken, "not valid TOML"),
        (binary, "not valid TOML"),
        (tmp_path / "gone.toml", "no profile at"),
        (tmp_path, "that is a folder"),
        (tmp_path / ("x" * 5000 + ".toml"), "no profile at"),
    ]:
        with pytest.raises(UsageError, match=says):
            profile.load(str(path))
    with pytest.raises(UsageError, match="quickstart"):
        profile.load("quikstart")


def test_every_number_of_a_profile_is_bounded() -> None:
    defaults = profile.Profile()
    numbers = {
        f"{table.name}.{field.name}"
        for table in dataclasses.fields(defaults)
        if dataclasses.is_dataclass(part := getattr(defaults, table.name))
        for field in dataclasses.fields(part)
        if type(getattr(part, field.name)) in (int, float)
    }
    assert numbers == set(profile._BOUNDS)


@pytest.mark.parametrize("text", ["answer.k", "=3", ""])
def test_a_setting_without_a_key_or_value(text: str) -> None:
    with pytest.raises(UsageError, match="key=value"):
        profile.parse_setting(text)
