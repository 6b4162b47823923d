from __future__ import annotations

from collections.abc import Iterator

import pytest

from agentmem.memory import Endpoints
from tests.systems.stub import DIMS, Stub


@pytest.fixture
def stub() -> Iterator[Stub]:
    server = Stub()
    yield server
    server.stop()


@pytest.fixture
def endpoints(stub: Stub) -> Endpoints:
    return Endpoints(stub.url, "chat", stub.url, "embed", DIMS, 8192)
