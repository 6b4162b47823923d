"""Profiles: every key known, typed and recorded; mistakes named with the nearest key."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentmem import profile
from agentmem.errors import UsageError


@pytest.mark.parametrize(
    "path", sorted(profile.profiles_dir().glob("*.toml")), ids=lambda p: p.stem
)
def test_a_bundled_profile_loads(path: Path) -> None:
    loaded = profile.load(path.stem)
    assert loaded.name == path.stem
    assert loaded.description


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
    ],
)
def test_a_mistake_is_one_clear_line(data: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        profile.parse(data)
    assert "\n" not in str(caught.value)


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
    ]:
        with pytest.raises(UsageError, match=says):
            profile.load(str(path))
    with pytest.raises(UsageError, match="quickstart"):
        profile.load("quikstart")


@pytest.mark.parametrize("text", ["answer.k", "=3", ""])
def test_a_setting_without_a_key_or_value(text: str) -> None:
    with pytest.raises(UsageError, match="key=value"):
        profile.parse_setting(text)
