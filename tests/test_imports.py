"""Who may import whom: the arrows of the architecture, held by parsing every import."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "agentmem"
LEAVES = {"errors", "records", "memory"}
SHARED = {"errors", "records", "modelfiles"}
ALLOWED = {
    "errors": set(),
    "records": set(),
    "memory": set(),
    "profile": {"errors"},
    "modelfiles": {"errors"},
    "workloads": SHARED | {"memory"},
    "sandbox": SHARED | {"memory"},
    "gateway": SHARED,
    "meters": {"errors", "records"},
    "telemetry": {"errors", "records"},
    "engine": {"errors", "modelfiles"},
    "runner": SHARED
    | {"memory", "profile", "workloads", "sandbox", "gateway", "meters", "telemetry"},
    "analysis": {"errors", "records", "telemetry"},
    "report": {"errors", "records", "analysis"},
}


def room(path: Path) -> str:
    """Top-level part a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Parts of agentmem that a file imports, wherever the import stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level and not path.is_relative_to(PACKAGE):
                continue  # a memory system may be several files
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            names = [f"{module}.{a.name}" for a in node.names] if module == "agentmem" else [module]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "agentmem" and len(parts) > 1:
                found.add(parts[1])
    return found


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_a_part_imports_only_what_it_may(part: str) -> None:
    files = [f for f in FILES if room(f) == part]
    assert files, f"no file in {part}"
    for path in files:
        extra = imported(path) - ALLOWED[part] - {part, "__version__"}
        assert not extra, f"{path.relative_to(ROOT)} imports {sorted(extra)}"


def test_every_part_has_a_rule() -> None:
    parts = {room(f) for f in FILES} - {"__init__", "__main__", "cli"}
    assert parts == set(ALLOWED)


def test_the_adapter_seam_is_standard_library_only() -> None:
    names = set(sys.stdlib_module_names)
    for node in ast.walk(ast.parse((PACKAGE / "memory.py").read_text())):
        if isinstance(node, ast.Import):
            assert {a.name.split(".")[0] for a in node.names} <= names
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] in names


def test_the_worker_is_standard_library_only() -> None:
    names = set(sys.stdlib_module_names) | {"agentmem"}
    for node in ast.walk(ast.parse((PACKAGE / "sandbox" / "worker.py").read_text())):
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] in names, ast.dump(node)
        elif isinstance(node, ast.Import):
            assert {a.name.split(".")[0] for a in node.names} <= names, ast.dump(node)


@pytest.mark.parametrize("adapter", sorted((ROOT / "memsystems").glob("*/adapter.py")), ids=str)
def test_an_adapter_knows_one_file_of_ours(adapter: Path) -> None:
    assert imported(adapter) <= {"memory"}
