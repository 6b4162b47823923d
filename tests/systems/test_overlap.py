"""Questions beside a construction: each sees whole units, and says which."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agentmem.memory import Endpoints, Limits, Turn, Unit
from agentmem.sandbox.client import Worker
from agentmem.sandbox.environment import ensure
from agentmem.sandbox.launch import WorkerOptions
from agentmem.sandbox.specs import discover, find
from tests.systems.stub import Stub

UNITS, TURNS = 40, 3


def numbered(number: int) -> Unit:
    turns = tuple(
        Turn(f"u{number}:{i}", "Ann", "user", f"glacier note {number} part {i}")
        for i in range(TURNS)
    )
    return Unit(f"u{number}", "ann", "", turns)


@pytest.mark.parametrize("name", [n for n, s in discover().items() if s.overlap])
def test_a_question_sees_the_version_it_names(
    name: str, tmp_path: Path, stub: Stub, endpoints: Endpoints
) -> None:
    spec, options = find(name), WorkerOptions(overlap=True)
    worker = Worker(
        spec, ensure(spec), tmp_path / "store", tmp_path / "logs", (stub.port,), options=options
    )
    seen: list[int] = []
    with worker:
        worker.open(endpoints, Limits(request_timeout_s=30.0))

        def build() -> None:
            for number in range(UNITS):
                worker.construct(numbered(number))
            worker.flush()

        builder = threading.Thread(target=build)
        builder.start()
        while builder.is_alive():
            found = worker.retrieve("ann", "glacier note part", 1000)
            units = {(e.source_ids or ("",))[0].split(":")[0] for e in found.entries}
            assert len(found.entries) == TURNS * len(units), "half a unit was seen"
            assert found.version_read == len(units)
            seen.append(len(units))
        builder.join()
        assert len(worker.retrieve("ann", "glacier note part", 1000).entries) == UNITS * TURNS
    assert seen == sorted(seen) and any(0 < n < UNITS for n in seen), "nothing overlapped"
    if spec.endpoints:
        assert set(stub.operations) == {"construct", "retrieve"}


def test_the_bundled_ones_that_can_say_so() -> None:
    assert {n for n, s in discover().items() if s.overlap} == {"bm25", "embedrag"}
