"""The example of a third party's package: installed for real, found by entry point, fit for use."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentmem.memory import Endpoints
from agentmem.sandbox.environment import ensure
from agentmem.sandbox.specs import discover, survey
from tests.systems.contract import CHECKS, Bench

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "notebook_memory"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example installed by pip, as site-packages would hold it."""
    folder = tmp_path_factory.mktemp("example")
    source = folder / "source"
    shutil.copytree(EXAMPLE, source)
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--disable-pip-version-check"]
    if importlib.util.find_spec("setuptools") is not None:
        command += ["--no-index", "--no-build-isolation"]
    done = subprocess.run(
        [*command, "--target", str(folder / "site"), str(source)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def test_the_installed_example_meets_the_contract(
    site: Path, tmp_path: Path, endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "notebook" not in discover()
    monkeypatch.syspath_prepend(str(site))
    spec = discover()["notebook"]
    assert spec.folder == (site / "notebook_memory").resolve()
    for check in CHECKS:
        check(Bench(spec, ensure(spec), tmp_path / check.__name__, endpoints, ()))


def test_the_example_is_found_by_folder_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTMEM_SYSTEMS", str(EXAMPLE))
    assert discover()["notebook"].folder == EXAMPLE / "notebook_memory"


def test_the_documentation_shows_the_adapter_as_it_is() -> None:
    page = (EXAMPLE.parents[1] / "docs" / "add-your-system.md").read_text(encoding="utf-8")
    for name in ("adapter.py", "system.toml"):
        text = (EXAMPLE / "notebook_memory" / name).read_text(encoding="utf-8")
        assert text.strip() in page, f"docs/add-your-system.md shows another {name}"


def test_an_entry_point_to_nothing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "ghost-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ghost\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[agentmem.systems]\nghost = no_such_package\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    [bad] = survey().broken
    assert bad.names == ("ghost",) and "'no_such_package', which is not installed" in bad.reason
