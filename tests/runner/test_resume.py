"""What stands after a kill, read from the journal alone."""

from __future__ import annotations

from pathlib import Path

from agentmem.records import Mark, Query, Row, Unit
from agentmem.runner.resume import Progressed, progressed, restore


def mark(what: str, unit: str | None = None, epoch: int = 0) -> Mark:
    return Mark("s", "sys", "h", what, unit, 0.0, None, epoch)  # type: ignore[arg-type]


def unit(name: str, epoch: int = 0) -> Unit:
    return Unit("s", "sys", "h", name, 0, "ok", 0.1, 4, 1, 1, 0, 0, 0, None, None, None, epoch)


def query(name: str) -> Query:
    return Query(
        "s", "sys", "h", name, "c", "q", ("g",), (), False, (), (), "ok", "a", None, (), 10, False,
        0, None, None, None, None, False,
    )  # fmt: skip


def test_a_scope_never_opened_starts_from_nothing() -> None:
    assert progressed([unit("u0")], "other") == Progressed()


def test_units_after_the_last_snapshot_are_run_again() -> None:
    rows: list[Row] = [mark("open"), unit("u0"), unit("u1"), mark("snapshot", "u1"), unit("u2")]
    state = progressed(rows, "s")
    assert (state.units, state.snapshot, state.epoch) == (("u0", "u1"), "u1", 1)
    assert not state.constructed


def test_without_a_snapshot_everything_is_run_again() -> None:
    state = progressed([mark("open"), unit("u0")], "s")
    assert (state.units, state.snapshot, state.epoch) == ((), None, 1)


def test_a_second_kill_builds_on_the_first_resume() -> None:
    rows: list[Row] = [mark("open"), unit("u0"), mark("snapshot", "u0"), unit("u1")]
    rows += [mark("resumed", "u0", 1), unit("u1", 1), mark("snapshot", "u1", 1)]
    state = progressed(rows, "s")
    assert (state.units, state.snapshot, state.epoch) == (("u0", "u1"), "u1", 2)


def test_finished_questions_stand() -> None:
    rows: list[Row] = [mark("open"), unit("u0"), mark("snapshot", "u0"), mark("constructed")]
    rows += [query("q0"), query("q1")]
    state = progressed(rows, "s")
    assert state.constructed
    assert state.queries == ("q0", "q1")
    assert progressed([*rows, mark("done")], "s").done


def test_restore_moves_the_old_store_aside(tmp_path: Path) -> None:
    store, snapshots = tmp_path / "store", tmp_path / "snap"
    store.mkdir()
    (store / "data").write_text("half written")
    (snapshots / "u_1").mkdir(parents=True)
    (snapshots / "u_1" / "data").write_text("whole")
    restore(store, snapshots, "u:1")
    assert (store / "data").read_text() == "whole"
    assert (tmp_path / "store.superseded" / "data").read_text() == "half written"
    restore(store, snapshots, None)
    assert not any(store.iterdir())
    assert (tmp_path / "store.superseded2" / "data").read_text() == "whole"
