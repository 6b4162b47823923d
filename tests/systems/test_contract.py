"""The contract, for every system that is found and can run here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agentmem.memory import Endpoints
from agentmem.sandbox.environment import ensure, status
from agentmem.sandbox.specs import discover
from tests.systems.contract import Bench, parametrised
from tests.systems.stub import Stub

SYSTEMS = discover()
HOST = [name for name, spec in SYSTEMS.items() if spec.environment == "host"]


OWN = [
    name
    for name, spec in SYSTEMS.items()
    if spec.environment == "own"
    and not Path(__file__).with_name(f"test_{name}_contract.py").exists()
]
"""Systems whose models must say something in particular have a file of their own."""


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


@pytest.mark.heavy
@parametrised(OWN)
def test_contract_in_its_own_environment(
    name: str, check: Callable[[Bench], None], tmp_path: Path, stub: Stub, endpoints: Endpoints
) -> None:
    spec = SYSTEMS[name]
    if status(spec).state != "ready":
        pytest.skip(f"agentmem systems install {name}")
    check(Bench(spec, ensure(spec), tmp_path, endpoints, (stub.port,)))
