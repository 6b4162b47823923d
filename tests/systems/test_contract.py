"""The contract, for every system that is found and can run here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agentmem.memory import Endpoints
from agentmem.sandbox.environment import ensure
from agentmem.sandbox.specs import discover
from tests.systems.contract import Bench, parametrised
from tests.systems.stub import Stub

SYSTEMS = discover()
HOST = [name for name, spec in SYSTEMS.items() if spec.environment == "host"]


def test_the_built_in_systems_are_found() -> None:
    assert {"long_context", "bm25", "embedrag"} <= set(HOST)


@parametrised(HOST)
def test_contract(
    name: str, check: Callable[[Bench], None], tmp_path: Path, stub: Stub, endpoints: Endpoints
) -> None:
    spec = SYSTEMS[name]
    ports = (stub.port,) if spec.endpoints else ()
    check(Bench(spec, ensure(spec), tmp_path, endpoints, ports))
    if not spec.endpoints:
        assert stub.batches == []
