"""What every memory system promises. Each check takes a `Bench` and fails by assertion."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agentmem.memory import Endpoints, Limits, Turn, Unit
from agentmem.sandbox.client import Worker, WorkerOptions, restore
from agentmem.sandbox.environment import Environment
from agentmem.sandbox.failure import WorkerFailure
from agentmem.sandbox.specs import SystemSpec

FACTS = {
    "alice": (
        "I adopted a grey cat called Pickle last Tuesday",
        "My sister Renate moved to Lisbon in spring",
        "I play the cello in a small orchestra",
        "We painted the kitchen in bright yellow",
    ),
    "bob": (
        "My motorbike broke down near Verona",
        "I am allergic to walnuts and hazelnuts",
    ),
}
ODD = 'nul \x00 emoji \U0001f9e0 lone \ud800 quote " backslash \\ line\nbreak'


def unit(user: str, number: int, text: str) -> Unit:
    at = f"2024-03-0{number % 9 + 1}T10:00:00"
    turns = (
        Turn(f"{user}:{number}:0", user.title(), "user", text, at),
        Turn(f"{user}:{number}:1", "Helper", "assistant", "Thanks for telling me", at),
    )
    body = "\n".join(f"{turn.speaker}: {turn.text}" for turn in turns)
    return Unit(f"{user}-{number}", user, body, turns, at)


@dataclass
class Bench:
    """A system, where it may run, and the endpoint it may call."""

    spec: SystemSpec
    env: Environment
    folder: Path
    endpoints: Endpoints
    ports: tuple[int, ...]
    options: WorkerOptions = field(default_factory=WorkerOptions)

    @contextmanager
    def worker(self, store: str = "store") -> Iterator[Worker]:
        """An opened worker on the named store folder."""
        worker = Worker(
            self.spec, self.env, self.folder / store, self.folder / "logs", self.ports, self.options
        )
        with worker:
            worker.open(self.endpoints, Limits(max_output_tokens=256, request_timeout_s=30.0))
            yield worker


def feed(worker: Worker, user: str) -> int:
    """All facts of a user, flushed; returns the records added."""
    added = sum(
        worker.construct(unit(user, i, text)).added for i, text in enumerate(FACTS[user], 1)
    )
    worker.flush()
    return added


def texts(worker: Worker, user: str, question: str, k: int = 10) -> str:
    return "\n".join(e.text for e in worker.retrieve(user, question, k).entries)


def finds_what_was_told(bench: Bench) -> None:
    with bench.worker() as worker:
        assert feed(worker, "alice") >= 1
        assert "Pickle" in texts(worker, "alice", "What is the name of Alice's cat called?")


def survives_a_reopen(bench: Bench) -> None:
    with bench.worker() as worker:
        feed(worker, "alice")
        before = worker.retrieve("alice", "Which instrument does Alice play?", 3)
    with bench.worker() as worker:
        after = worker.retrieve("alice", "Which instrument does Alice play?", 3)
        assert after.entries == before.entries
        assert "cello" in "".join(e.text for e in after.entries)
        worker.construct(unit("alice", 9, "My new doorbell is called Humboldt"))
        worker.flush()
        assert "Humboldt" in texts(worker, "alice", "doorbell called Humboldt")


def an_unknown_user_finds_nothing(bench: Bench) -> None:
    with bench.worker() as worker:
        assert worker.retrieve("nobody", "What is the cat called?", 10).entries == ()
        feed(worker, "alice")
        assert worker.retrieve("nobody", "What is the cat called?", 10).entries == ()


def users_are_apart(bench: Bench) -> None:
    with bench.worker() as worker:
        feed(worker, "alice")
        feed(worker, "bob")
        assert "Verona" not in texts(worker, "alice", "Where did the motorbike break down?")
        assert "Pickle" not in texts(worker, "bob", "What is the grey cat called?")


def k_is_respected(bench: Bench) -> None:
    with bench.worker() as worker:
        feed(worker, "alice")
        for k in (1, 2, 5):
            found = worker.retrieve("alice", "Tell me about the cat, cello and kitchen", k)
            if bench.spec.passthrough:
                assert len(found.entries) == len(FACTS["alice"])
            else:
                assert 1 <= len(found.entries) <= k


def forgets_a_user(bench: Bench) -> None:
    with bench.worker() as worker:
        feed(worker, "alice")
        feed(worker, "bob")
        if (removed := forget(worker, user="alice")) is None:
            return
        assert removed >= 1
        assert worker.retrieve("alice", "What is the cat called?", 10).entries == ()
        assert "Verona" in texts(worker, "bob", "Where did the motorbike break down?")
        worker.flush()
    assert b"Pickle" not in everything(bench.folder / "store")
    with bench.worker() as worker:
        assert worker.retrieve("alice", "What is the cat called?", 10).entries == ()
        assert "walnuts" in texts(worker, "bob", "What is Bob allergic to, walnuts?")


def forgets_a_unit(bench: Bench) -> None:
    with bench.worker() as worker:
        feed(worker, "alice")
        if forget(worker, unit_ids=("alice-1",)) is None:
            return
        assert "Pickle" not in texts(worker, "alice", "What is the cat called?")
        assert "cello" in texts(worker, "alice", "Which instrument, the cello?")
        assert forget(worker, unit_ids=("no-such-unit",)) == 0
        assert forget(worker, "bob", ("alice-3",)) == 0
        assert "cello" in texts(worker, "alice", "Which instrument, the cello?")
        assert forget(worker, "alice", ("alice-3",)) != 0
        assert "cello" not in texts(worker, "alice", "Which instrument, the cello?")
        with pytest.raises(WorkerFailure, match="forget needs a user or unit ids"):
            worker.forget()


def forget(worker: Worker, user: str | None = None, unit_ids: tuple[str, ...] = ()) -> int | None:
    """None for a system that says it cannot."""
    try:
        return worker.forget(user, unit_ids)
    except WorkerFailure as failure:
        assert "NotImplementedError" in failure.message, failure.traceback
        return None


def everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def the_footprint_grows(bench: Bench) -> None:
    with bench.worker() as worker:
        empty = worker.footprint()
        feed(worker, "alice")
        full = worker.footprint()
        assert sum(full.values()) > sum(empty.values())
        if bench.spec.stores:
            assert set(full) <= set(bench.spec.stores)


def a_snapshot_restores(bench: Bench) -> None:
    snapshot = bench.folder / "snapshot"
    with bench.worker() as worker:
        feed(worker, "alice")
        worker.snapshot(snapshot)
        worker.construct(unit("alice", 8, "The lighthouse keeper is called Ottokar"))
        worker.flush()
        assert "Ottokar" in texts(worker, "alice", "lighthouse keeper Ottokar")
    restore(snapshot, bench.folder / "store")
    with bench.worker() as worker:
        assert "Ottokar" not in texts(worker, "alice", "lighthouse keeper Ottokar")
        assert "Pickle" in texts(worker, "alice", "What is the grey cat called?")


def the_version_rises(bench: Bench) -> None:
    with bench.worker() as worker:
        versions = [
            worker.construct(unit("alice", i, text)).store_version
            for i, text in enumerate(FACTS["alice"], 1)
        ]
        if versions[0] is None:
            assert versions == [None] * len(versions)
            return
        assert versions == sorted(set(versions)), versions
        worker.flush()
        assert worker.retrieve("alice", "cat", 3).version_read == versions[-1]
    with bench.worker() as worker:
        again = worker.construct(unit("alice", 7, "A later remark about tulips")).store_version
        assert again is not None and again > versions[-1]


def odd_text_survives(bench: Bench) -> None:
    with bench.worker() as worker:
        worker.construct(unit("alice", 1, ODD))
        worker.construct(unit("alice", 2, ODD))
        worker.construct(unit("alice", 3, "mangrove " * 125_000))
        worker.construct(unit("alice", 4, ""))
        worker.construct(Unit("alice-5", "alice", "No turns here, only a saxophone."))
        worker.flush()
        assert "saxophone" in texts(worker, "alice", "Which instrument, a saxophone?")
        assert "mangrove" in texts(worker, "alice", "mangrove")


def two_runs_are_alike(bench: Bench) -> None:
    """Same units, same seed: same entries, same bytes on disk where the store is files of ours."""
    seen = []
    for store in ("first", "second"):
        with bench.worker(store) as worker:
            feed(worker, "alice")
            seen.append(worker.retrieve("alice", "Which instrument does Alice play?", 5))
    assert seen[0] == seen[1]


def only_loopback_is_called(bench: Bench) -> None:
    with bench.worker() as worker:
        blocked = worker.last.blocked if worker.last else 0
        for i, text in enumerate(FACTS["alice"], 1):
            worker.construct(unit("alice", i, text))
            blocked += worker.last.blocked if worker.last else 0
        worker.retrieve("alice", "What is the cat called?", 3)
        blocked += worker.last.blocked if worker.last else 0
    assert blocked == 0


def imports_are_declared(bench: Bench) -> None:
    """An adapter's files import agentmem.memory, the standard library, and declared modules."""
    declared = bench.spec.upstream.imports if bench.spec.upstream else ()
    allowed = set(sys.stdlib_module_names) | set(declared)
    for path in bench.spec.adapter.parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            for name in names:
                ours = name == "agentmem.memory"
                assert ours or name.split(".")[0] in allowed, f"{path.name}: {name}"


CHECKS: tuple[Callable[[Bench], None], ...] = (
    finds_what_was_told,
    survives_a_reopen,
    an_unknown_user_finds_nothing,
    users_are_apart,
    k_is_respected,
    forgets_a_user,
    forgets_a_unit,
    the_footprint_grows,
    a_snapshot_restores,
    the_version_rises,
    odd_text_survives,
    two_runs_are_alike,
    only_loopback_is_called,
    imports_are_declared,
)


def parametrised(names: list[str]) -> pytest.MarkDecorator:
    """Every check for every named system."""
    pairs = [pytest.param(n, c, id=f"{n}-{c.__name__}") for n in names for c in CHECKS]
    return pytest.mark.parametrize(("name", "check"), pairs)
