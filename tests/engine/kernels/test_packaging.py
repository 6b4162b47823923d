"""Wheels with and without a compiler, from a copy of the checkout."""

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PARTS = ("agentmem", "native", "memsystems", "profiles")
FILES = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("scikit_build_core") is None or find_spec("nanobind") is None,
        reason="needs scikit-build-core and nanobind beside pip",
    ),
]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    copy = tmp_path / "checkout"
    copy.mkdir()
    ignore = shutil.ignore_patterns("__pycache__", "*.so", ".venv")
    for part in PARTS:
        shutil.copytree(ROOT / part, copy / part, ignore=ignore)
    for file in FILES:
        shutil.copy(ROOT / file, copy / file)
    return copy


def wheel(checkout: Path, path: str) -> list[str]:
    """Names in the wheel built with this PATH."""
    out = checkout.parent / "wheels"
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    env = {**os.environ, "PATH": path}
    env.pop("CXX", None)
    subprocess.run([*command, "-w", out, checkout], check=True, env=env, timeout=900)
    (found,) = out.glob("*.whl")
    with zipfile.ZipFile(found) as file:
        return file.namelist()


def check_contents(names: list[str]) -> None:
    held = set(names)
    assert "agentmem/engine/kernels/native.py" in held
    assert "agentmem/_bundled/profiles/quickstart.toml" in held
    for system in (ROOT / "memsystems").glob("*/system.toml"):
        assert f"agentmem/_bundled/memsystems/{system.parent.name}/system.toml" in held
    assert not any(n.startswith(("tests/", "native/", "docs/")) for n in held)


@pytest.mark.timeout(900)
def test_a_wheel_without_a_compiler_is_plain_python(checkout: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bin"
    bare.mkdir()
    for tool in ("cmake", "ninja", "make", "git"):
        found = shutil.which(tool)
        if found:
            (bare / tool).symlink_to(found)
    names = wheel(checkout, str(bare))
    check_contents(names)
    assert not any(n.endswith(".so") for n in names)


@pytest.mark.timeout(900)
def test_a_wheel_with_a_compiler_holds_the_module(checkout: Path) -> None:
    if shutil.which("c++") is None:
        pytest.skip("no compiler here")
    names = wheel(checkout, os.environ["PATH"])
    check_contents(names)
    built = [n for n in names if n.endswith(".so")]
    assert len(built) == 1
    assert built[0].startswith("agentmem/engine/kernels/_native")
