"""Fixtures for the whole suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fake import FakeUpstream


@pytest.fixture
def fake() -> Iterator[FakeUpstream]:
    """A running model server that knows the true bill; turn `fake.behaviour` as needed."""
    with FakeUpstream() as server:
        yield server
