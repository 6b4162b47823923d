"""The disk fills up under the run folder, or under a system's store."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentmem.analysis.equal import differences
from agentmem.analysis.load import Run
from tests.faults.conftest import MakeTrial
from tests.faults.stage import Trial, deed, lost
from tests.faults.table import add

CalmOf = Callable[[str], Run]


@contextmanager
def small_disk(at: Path, size: str) -> Iterator[None]:
    """A file system of `size` mounted at `at`; the test is skipped where that is not allowed."""
    at.mkdir(parents=True, exist_ok=True)
    options = f"size={size},mode=755"
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(at)]
    if os.getuid() != 0 or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


def fill(folder: Path) -> Path:
    """Take all the space that is left; delete the returned file to give it back."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while file.write(b"\0" * size):
                    pass
            except OSError:
                continue
    return ballast


@pytest.mark.parametrize("kind", ["decide", pytest.param("embed-query", marks=pytest.mark.slow)])
def test_a_full_run_folder(kind: str, trial: MakeTrial, calm_of: CalmOf, tmp_path: Path) -> None:
    one = trial()
    with small_disk(one.out, "4m"):
        one.fake.fail(deed(kind, 1, lambda: fill(one.out)))
        told = one.go()
        assert told.code == 3
        assert len([line for line in told.lines if line.startswith("agentmem:")]) == 1
        assert "No space left on device" in told.lines[-1]
        stood = one.rows()
        add(f"run folder, {kind}", "disk full", "stopped", 3, "nothing finished", told.lines[-1])
        (one.out / "ballast").unlink()
        again = one.go()
        assert again.code == 0
        assert one.rows()[: len(stood)] == stood
        assert one.broken() == []
        assert differences(calm_of("scribe"), one.load()) == []
        add(f"run folder, {kind}", "space again", "resumed to the end", 0, lost(one.load()), "")


def test_a_full_store(trial: MakeTrial) -> None:
    """Only the system's own folder: its units fail one by one, the run goes on."""
    one: Trial = trial()
    one.fake.behaviour.dims = 512  # a note is larger than what is left of its last page
    store = one.out / "stores" / "scribe" / "life-0"
    with small_disk(store, "64k"):
        one.fake.fail(deed("decide", 1, lambda: fill(store)))
        told = one.go()
        run = one.load()
        assert one.broken() == []
        assert told.code == 0
        assert run.units["status"].tolist() == ["ok", "failed", "failed"]
        assert set(run.queries["status"]) == {"ok"}
        assert [line for line in told.lines if "No space left on device" in line]
        add("store", "disk full", "listed as failed", told.code, lost(run), told.lines[0])
