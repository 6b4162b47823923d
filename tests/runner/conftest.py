"""A small profile against the fake upstream."""

from __future__ import annotations

from typing import Any

import pytest

from agentmem import profile
from agentmem.profile import Profile
from tests.fake import FakeUpstream

WORKLOAD = {
    "name": "generated",
    "seed": 3,
    "unit": "session",
    "sessions": 5,
    "history_tokens": 600,
    "questions": 4,
    "tokenizer": "words-v1",
}


def profile_data(url: str, systems: list[str], **tables: Any) -> dict[str, Any]:
    """Plain data of a profile that talks to the fake upstream at `url`."""
    return {
        "name": "small",
        "systems": systems,
        "workload": WORKLOAD,
        "engine": {
            "url": url,
            "model": "fake-chat",
            "embedder": "fake-embed",
            "start_timeout_s": 2.0,
        },
        "run": {"quiet_s": 0.02, "snapshot_every": 2} | tables.pop("run", {}),
    } | tables


@pytest.fixture
def small(fake: FakeUpstream) -> Profile:
    """Three built-in systems, five sessions, four questions."""
    return profile.parse(profile_data(fake.url, ["long_context", "bm25", "embedrag"]))
