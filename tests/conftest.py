"""Fixtures for the whole suite."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.fake import FakeUpstream

# A build must say something about the change, not about the day's luck; elsewhere luck is welcome.
settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture
def fake() -> Iterator[FakeUpstream]:
    """A running model server that knows the true bill; turn `fake.behaviour` as needed."""
    with FakeUpstream() as server:
        yield server
