"""The run folder: one writer, clear errors, manifests replaced whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentmem.errors import DataError, UsageError
from agentmem.runner.folder import RunFolder


def test_two_runs_cannot_share_a_folder(tmp_path: Path) -> None:
    first = RunFolder(tmp_path / "run")
    with pytest.raises(UsageError, match="in use by another run"):
        RunFolder(tmp_path / "run")
    first.close()
    RunFolder(tmp_path / "run").close()


def test_a_manifest_round_trips(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert folder.read_manifest() is None
    folder.write_manifest({"format": 1, "identity": "x"})
    assert folder.read_manifest() == {"format": 1, "identity": "x"}


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 99}', "null"])
def test_a_foreign_manifest_is_refused(tmp_path: Path, text: str) -> None:
    folder = RunFolder(tmp_path / "run")
    (folder.path / "manifest.json").write_text(text)
    with pytest.raises(DataError, match=r"manifest\.json"):
        folder.read_manifest()


def test_a_path_that_cannot_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="choose another --out"):
        RunFolder(tmp_path / "file" / "run")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="cannot write"):
        RunFolder(tmp_path / "run")
