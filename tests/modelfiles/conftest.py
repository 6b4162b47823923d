"""Fetched models, or a reason to skip."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agentmem.modelfiles.fetch import is_fetched, resolve


@pytest.fixture(scope="session")
def fetched() -> Callable[[str], Path]:
    """Path of a fetched model; skips the test where it is not there."""

    def find(name: str) -> Path:
        if not is_fetched(name):
            pytest.skip(f"needs `agentmem models pull {name}`")
        return resolve(name)

    return find
