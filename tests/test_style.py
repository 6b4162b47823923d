"""The house style that a tool can hold: lint, format, types, size."""

from __future__ import annotations

import ast
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "agentmem").rglob("*.py")) + sorted((ROOT / "memsystems").rglob("*.py"))


def tool(*args: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *args], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_ruff_finds_nothing() -> None:
    tool("ruff", "check", "--no-cache", ".")


def test_ruff_would_change_no_formatting() -> None:
    tool("ruff", "format", "--no-cache", "--check", ".")


@pytest.mark.timeout(600)
def test_types_are_strict(tmp_path: Path) -> None:
    tool("mypy", "--cache-dir", str(tmp_path))


def test_files_and_functions_stay_small() -> None:
    sizes = {f: f.read_text(encoding="utf-8").count("\n") for f in FILES}
    assert max(sizes.values()) <= 400, max(sizes, key=lambda f: sizes[f])
    assert statistics.median(s for s in sizes.values() if s) <= 110
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                assert length <= 60, f"{path.name}:{node.lineno} {node.name}: {length} lines"


def test_broad_except_stands_at_the_worker_boundary_only() -> None:
    for path in FILES:
        if path.name.startswith("worker"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ExceptHandler):
                broad = node.type is None or (
                    isinstance(node.type, ast.Name) and node.type.id in ("Exception",)
                )
                assert not broad, f"{path.name}:{node.lineno}"
