from __future__ import annotations

from pathlib import Path

import pytest

from agentmem.errors import MemorySystemError, UsageError
from agentmem.records import Fingerprint
from agentmem.sandbox.specs import bundled_folder, discover, load_spec, survey
from tests.sandbox.systems import write_system

FINGERPRINT = """
[[fingerprints]]
kind = "extract"
stage = "construct"
contains = ["Extract the facts", "JSON"]
endpoint = "chat"
phase = "construction"
"""


def test_a_full_spec_is_read(tmp_path: Path) -> None:
    folder = write_system(
        tmp_path,
        extra='endpoints = ["chat"]\noverlap = true\nfidelity = "fixed"',
        tables='[env]\nDATA = "{store}/x"\n[timeouts]\nopen = 7\n' + FINGERPRINT,
    )
    spec = load_spec(folder)
    assert (spec.endpoints, spec.overlap, spec.fidelity) == (("chat",), True, "fixed")
    assert spec.timeouts.open == 7.0 and spec.timeouts.flush == 3600.0
    expected = Fingerprint(
        "extract", "construct", ("Extract the facts", "JSON"), "chat", "construction"
    )
    assert spec.fingerprints == (expected,)
    assert spec.requirements is None


@pytest.mark.parametrize(
    ("extra", "tables", "message"),
    [
        ("passthru = true", "", "unknown key 'passthru', did you mean 'passthrough'?"),
        ("", "[timeouts]\nconstrukt = 3", "did you mean 'construct'?"),
        ("", "[upstream]\npackage = 'x'\nlicense = 'MIT'", "did you mean 'licence'?"),
        ("", "[[fingerprints]]\nkind = 'a'\nstage = 'construkt'", "did you mean 'construct'?"),
        ("", "[[fingerprints]]\nkind = 'a'\nstages = 'store'", "did you mean 'stage'?"),
        ("overlap = 1", "", "key 'overlap' has the wrong type"),
        ("endpoints = ['embedding']", "", "endpoints holds 'embedding'"),
        ("fidelity = 'mended'", "", "fidelity = 'mended' is unknown"),
        ("adapter = 'none.py'", "", "none.py is missing"),
        ("", "[env]\nA = 1", "key 'env.A' must be a string"),
        ("x = = 1", "", "cannot be read"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, extra: str, tables: str, message: str) -> None:
    folder = write_system(tmp_path, extra=extra, tables=tables)
    with pytest.raises(MemorySystemError) as caught:
        load_spec(folder)
    assert message in str(caught.value)
    assert str(folder / "system.toml") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_taxonomy_key_is_named(tmp_path: Path) -> None:
    folder = write_system(tmp_path)
    toml = (folder / "system.toml").read_text().replace('store = "none"', "")
    (folder / "system.toml").write_text(toml)
    with pytest.raises(MemorySystemError, match=r"key 'taxonomy\.store' is missing"):
        load_spec(folder)


def test_a_system_of_its_own_environment_needs_requirements(tmp_path: Path) -> None:
    with pytest.raises(MemorySystemError, match=r"requirements\.txt is missing"):
        load_spec(write_system(tmp_path, environment="own"))


def test_a_folder_without_a_spec_is_named(tmp_path: Path) -> None:
    with pytest.raises(MemorySystemError, match=r"system\.toml is missing"):
        load_spec(tmp_path)


@pytest.mark.parametrize("name", ["no_memory", "a/b", "..", "über"])
def test_a_name_must_be_fit_for_a_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(MemorySystemError, match="name "):
        load_spec(write_system(tmp_path, name=name))


def test_a_variant_shares_an_adapter(tmp_path: Path) -> None:
    first = load_spec(write_system(tmp_path / "first", name="first"))
    folder = write_system(tmp_path / "other", name="other", extra='adapter = "../first/adapter.py"')
    other = load_spec(folder)
    assert other.adapter == first.adapter
    before = other.code_hash
    first.adapter.write_text(first.adapter.read_text() + "\n# changed\n")
    assert other.code_hash != before


def test_folders_of_the_user_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_system(tmp_path / "many" / "one", name="one")
    write_system(tmp_path / "many" / "two", name="two")
    write_system(tmp_path / "single", name="three")
    folders = f"{tmp_path / 'many'}:{tmp_path / 'single'}"
    monkeypatch.setenv("AGENTMEM_SYSTEMS", folders)
    assert {"one", "two", "three", "bm25"} <= set(discover())
    with pytest.raises(UsageError, match="did you mean 'three'"):
        survey().chosen(["thre"])


def test_two_of_one_name_are_both_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = write_system(tmp_path / "mine", name="bm25")
    monkeypatch.setenv("AGENTMEM_SYSTEMS", f"{tmp_path}:{mine}")  # one folder twice is one
    assert "bm25" not in discover() and "embedrag" in discover()
    with pytest.raises(MemorySystemError, match=r"2 systems are named 'bm25': .* and .*mine"):
        survey().chosen(["bm25"])


def test_a_folder_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTMEM_SYSTEMS", "/no/such/folder")
    [bad] = survey().broken
    assert bad.reason == "AGENTMEM_SYSTEMS names /no/such/folder, which is not a folder"
    assert "bm25" in discover()


@pytest.mark.parametrize("called", ["folder", "mine"])
def test_a_broken_one_fails_only_when_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: str
) -> None:
    write_system(tmp_path / "folder", name="mine", extra="overlapp = true")
    write_system(tmp_path / "sound", name="sound")
    monkeypatch.setenv("AGENTMEM_SYSTEMS", str(tmp_path))
    [bad] = survey().broken
    assert str(tmp_path / "folder") in bad.reason and "did you mean 'overlap'" in bad.reason
    assert [s.name for s in survey().chosen(["sound", "bm25"])] == ["sound", "bm25"]
    with pytest.raises(MemorySystemError, match=r"cannot be used: .*overlapp"):
        survey().chosen(["sound", called])


def test_a_broken_namesake_of_a_sound_one_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_system(tmp_path / "mine", name="bm25", extra="overlapp = true")
    monkeypatch.setenv("AGENTMEM_SYSTEMS", str(tmp_path))
    with pytest.raises(MemorySystemError, match="'bm25' cannot be used"):
        survey().chosen(["bm25"])
    assert survey().chosen(["embedrag"])


def test_every_bundled_system_has_a_readme() -> None:
    folders = [path.parent for path in bundled_folder().glob("*/system.toml")]
    assert len(folders) >= 3
    for folder in folders:
        assert len((folder / "README.md").read_text(encoding="utf-8")) > 200
