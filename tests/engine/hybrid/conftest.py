"""Saved toys, made once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentmem.engine.models.hybrid import Hybrid
from tests.engine.hybrid.toys import TOYS, save_toy


@dataclass(frozen=True)
class Pair:
    """One model twice, and where it is saved."""

    ours: Hybrid
    theirs: Any
    folder: Path


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """A toy by name."""
    made: dict[str, Pair] = {}

    def get(name: str) -> Pair:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            theirs = save_toy(TOYS[name], folder)
            made[name] = Pair(Hybrid.load(folder), theirs, folder)
        return made[name]

    return get
