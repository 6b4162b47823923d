"""embedRAG's own promises: what it asks of the endpoint, and what a crash may cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentmem.memory import Endpoints, Limits, Turn, Unit
from agentmem.sandbox.client import Worker
from agentmem.sandbox.environment import ensure
from agentmem.sandbox.failure import WorkerFailure
from agentmem.sandbox.specs import find
from tests.systems.contract import feed, texts, unit
from tests.systems.stub import DIMS, LONGEST_CHARS, Stub


def opened(folder: Path, stub: Stub, endpoints: Endpoints, **options: int) -> Worker:
    spec = find("embedrag")
    worker = Worker(spec, ensure(spec), folder / "store", folder / "logs", (stub.port,))
    worker.start()
    worker.open(endpoints, Limits(request_timeout_s=30.0, options=options))
    return worker


def session(count: int, words: int = 3) -> Unit:
    turns = tuple(
        Turn(f"s:{i}", "Ann", "user", f"remark number {i} " * words) for i in range(count)
    )
    return Unit("s", "ann", "", turns)


def test_a_unit_is_one_batch_and_a_question_one_text(
    tmp_path: Path, stub: Stub, endpoints: Endpoints
) -> None:
    worker = opened(tmp_path, stub, endpoints)
    assert worker.construct(session(40)).added == 40
    assert [len(batch) for batch in stub.batches] == [40]
    found = worker.retrieve("ann", "remark number 7", 5)
    assert stub.batches[-1] == ["remark number 7"] and len(stub.batches) == 2
    assert found.entries[0].source_ids == ("s:7",)
    scores = [entry.score or 0.0 for entry in found.entries]
    assert scores == sorted(scores, reverse=True) and -1 <= scores[-1] <= scores[0] <= 1.0001
    worker.retrieve("nobody", "remark number 7", 5)
    assert len(stub.batches) == 2
    worker.close()


def test_large_units_go_in_several_batches(
    tmp_path: Path, stub: Stub, endpoints: Endpoints
) -> None:
    worker = opened(tmp_path, stub, endpoints, embed_batch=16)
    worker.construct(session(40))
    assert [len(batch) for batch in stub.batches] == [16, 16, 8]
    assert worker.footprint()["vectors"] == 40 * DIMS * 4
    worker.close()


def test_a_text_past_the_window_is_embedded_in_halves(
    tmp_path: Path, stub: Stub, endpoints: Endpoints
) -> None:
    worker = opened(tmp_path, stub, endpoints, passage_chars=3 * LONGEST_CHARS)
    long = Turn("s:1", "Ann", "user", "glacier " * 600)
    stored = worker.construct(Unit("s", "ann", "", (Turn("s:0", "Ann", "user", "hill"), long)))
    assert stored.added == 2
    assert stored.note is not None and "embedded in halves" in stored.note
    assert worker.retrieve("ann", "glacier", 1).entries[0].source_ids == ("s:1",)
    worker.close()


def test_a_refusing_endpoint_is_a_failure_and_stores_nothing(
    tmp_path: Path, stub: Stub, endpoints: Endpoints
) -> None:
    worker = opened(tmp_path, stub, endpoints)
    stub.broken = True
    with pytest.raises(WorkerFailure, match="HTTP 500") as caught:
        worker.construct(unit("alice", 1, "I adopted a cat"))
    assert caught.value.kind == "raised"
    assert worker.footprint()["vectors"] == 0
    stub.broken = False
    feed(worker, "alice")
    assert "Pickle" in texts(worker, "alice", "the cat called Pickle")
    worker.close()


def test_vectors_without_a_record_are_cut_off(
    tmp_path: Path, stub: Stub, endpoints: Endpoints
) -> None:
    worker = opened(tmp_path, stub, endpoints)
    feed(worker, "alice")
    worker.close()
    records, vectors = tmp_path / "store" / "records.jsonl", tmp_path / "store" / "vectors-0.f32"
    whole = vectors.stat().st_size
    with vectors.open("ab") as file:
        file.write(b"\x00" * (DIMS * 4 + 3))
    records.write_bytes(records.read_bytes()[:-5])
    worker = opened(tmp_path, stub, endpoints)
    assert worker.footprint()["vectors"] == whole - 2 * DIMS * 4  # two turns a unit
    assert "Pickle" in texts(worker, "alice", "the cat called Pickle")
    worker.close()


def test_a_vector_file_too_short_is_an_error(
    tmp_path: Path, stub: Stub, endpoints: Endpoints
) -> None:
    worker = opened(tmp_path, stub, endpoints)
    feed(worker, "alice")
    worker.close()
    (tmp_path / "store" / "vectors-0.f32").write_bytes(b"")
    with pytest.raises(WorkerFailure, match="holds fewer than 8 vectors"):
        opened(tmp_path, stub, endpoints)


def test_forgetting_everything_and_starting_again(
    tmp_path: Path, stub: Stub, endpoints: Endpoints
) -> None:
    worker = opened(tmp_path, stub, endpoints)
    feed(worker, "alice")
    assert worker.forget(user="alice") == 8
    assert worker.footprint()["vectors"] == 0
    feed(worker, "bob")
    worker.close()
    worker = opened(tmp_path, stub, endpoints)
    assert "Verona" in texts(worker, "bob", "motorbike Verona")
    assert worker.forget(unit_ids=("bob-1",)) == 2
    assert "walnuts" in texts(worker, "bob", "walnuts")
    worker.close()
    assert len(list((tmp_path / "store").glob("vectors-*"))) == 1
