"""A moved session has one owner, whatever is killed when."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentmem.engine.kv.ownership import Ledger, claim_path, read_claim
from agentmem.errors import DataError
from tests.engine.kv.engines import Engine
from tests.engine.kv.toys import idle

LONG = list(range(22))


class Steps:
    """Counts steps, and dies at one: the process ends there, nothing is tidied up."""

    def __init__(self, fatal: int | None = None) -> None:
        self.names: list[str] = []
        self.fatal = fatal

    def __call__(self, name: str) -> None:
        self.names.append(name)
        if self.fatal == len(self.names) - 1:
            os._exit(9)


def in_child(work) -> int:  # type: ignore[no-untyped-def]
    """Exit status of a forked child that does the work."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def export(folder: Path, steps: Steps) -> None:
    old = Engine(ledger=folder / "old", step=steps)
    old.run(LONG)
    old.transfers.export(folder / "f", tenant=None, session_id="s", move=True)


def take(folder: Path, steps: Steps) -> None:
    new = Engine(ledger=folder / "new", step=steps)
    new.transfers.import_(folder / "f", tenant=None)


def owners(folder: Path) -> list[str]:
    """What both engines say when they start again."""
    old, new = Ledger(folder / "old"), Ledger(folder / "new")
    said = [] if old.moved(None, "s") else ["old"]
    # An engine that never had the session would begin it anew: it owns what it claimed.
    return said + (["new"] if new.epoch(None, "s") > 1 and not new.moved(None, "s") else [])


def steps_of(work, folder: Path) -> list[str]:  # type: ignore[no-untyped-def]
    steps = Steps()
    work(folder, steps)
    return steps.names


def test_an_export_killed_at_any_step_leaves_the_old_owner(tmp_path: Path) -> None:
    (tmp_path / "dry").mkdir()
    names = steps_of(export, tmp_path / "dry")
    assert {"note", "pages", "digest", "offer", "offered"} <= set(names)
    for fatal, name in enumerate(names):
        folder = tmp_path / str(fatal)
        folder.mkdir()
        assert in_child(lambda f=folder, n=fatal: export(f, Steps(n))) == 9
        assert owners(folder) == ["old"], name
        if name != "offered":
            assert not (folder / "f").exists(), "a half file is never seen"
        again = Engine(ledger=folder / "old")
        again.run(LONG)
        again.transfers.export(folder / "g", tenant=None, session_id="s", move=True)
        take_at = Engine(ledger=folder / "new")
        take_at.transfers.import_(folder / "g", tenant=None)
        assert owners(folder) == ["new"], name
        if (folder / "f").exists():
            with pytest.raises(DataError):
                Engine(ledger=folder / "third").transfers.import_(folder / "f", tenant=None)


def test_an_import_killed_at_any_step_leaves_one_owner_and_can_be_repeated(
    tmp_path: Path,
) -> None:
    (tmp_path / "dry").mkdir()
    export(tmp_path / "dry", Steps())
    names = steps_of(take, tmp_path / "dry")
    assert names.index("note") < names.index("claim") < names.index("claimed")
    assert names.index("claimed") < names.index("fill") < names.index("publish")
    for fatal, name in enumerate(names):
        folder = tmp_path / str(fatal)
        folder.mkdir()
        export(folder, Steps())
        assert in_child(lambda f=folder, n=fatal: take(f, Steps(n))) == 9
        claimed = fatal > names.index("claim")
        assert owners(folder) == (["new"] if claimed else ["old"]), name
        if claimed:
            with pytest.raises(DataError, match="claimed by"):
                Engine(ledger=folder / "third").transfers.import_(folder / "f", tenant=None)
        again = Engine(ledger=folder / "new")
        assert again.transfers.import_(folder / "f", tenant=None).epoch == 2
        assert again.run([*LONG, 1]) == 22
        assert owners(folder) == ["new"]


def test_the_old_owner_serves_until_the_claim_and_refuses_after_it(tmp_path: Path) -> None:
    old, new, late = Engine(), Engine(), Engine()
    old.run(LONG)
    out = old.transfers.export(tmp_path / "f", tenant=None, session_id="s", move=True)
    assert (out.epoch, out.moved) == (1, True)
    assert not old.transfers.moved(None, "s")
    assert old.run([*LONG, 1]) == 22
    assert new.transfers.import_(tmp_path / "f", tenant=None).epoch == 2
    assert old.transfers.moved(None, "s")
    assert not old.transfers.moved("other", "s")
    assert old.kv.session(None, "s") is None
    assert old.kv.counts().cached_blocks == 0, "its state is given up with it"
    assert not new.transfers.moved(None, "s")
    with pytest.raises(DataError, match="claimed by"):
        late.transfers.import_(tmp_path / "f", tenant=None)
    assert late.kv.counts().cached_blocks == 0
    assert idle(late.kv)
    with pytest.raises(DataError, match="has moved"):
        old.transfers.export(tmp_path / "g", tenant=None, session_id="s")


def test_a_session_may_come_back(tmp_path: Path) -> None:
    one, two = Engine(ledger=tmp_path / "1"), Engine(ledger=tmp_path / "2")
    one.run(LONG)
    one.transfers.export(tmp_path / "f", tenant=None, session_id="s", move=True)
    two.transfers.import_(tmp_path / "f", tenant=None)
    assert one.transfers.moved(None, "s")
    assert two.run([*LONG, 1, 2]) == 22
    two.transfers.export(tmp_path / "g", tenant=None, session_id="s", move=True)
    assert one.transfers.import_(tmp_path / "g", tenant=None).epoch == 3
    assert two.transfers.moved(None, "s")
    assert not one.transfers.moved(None, "s")
    assert one.run([*LONG, 1, 2, 3]) == 24
    claim_path(tmp_path / "f").unlink()
    with pytest.raises(DataError, match="epoch 1, but 3 was seen"):
        one.transfers.import_(tmp_path / "f", tenant=None)


def test_a_second_offer_withdraws_the_first(tmp_path: Path) -> None:
    old, new = Engine(), Engine()
    old.run(LONG)
    old.transfers.export(tmp_path / "f", tenant=None, session_id="s", move=True)
    out = old.transfers.export(tmp_path / "g", tenant=None, session_id="s", move=True)
    assert out.epoch == 2
    with pytest.raises(DataError, match="claimed by"):
        new.transfers.import_(tmp_path / "f", tenant=None)
    assert not old.transfers.moved(None, "s")
    new.transfers.import_(tmp_path / "g", tenant=None)
    assert old.transfers.moved(None, "s")


def test_an_owner_may_take_its_own_offer_back(tmp_path: Path) -> None:
    old = Engine()
    old.run(LONG)
    old.transfers.export(tmp_path / "f", tenant=None, session_id="s", move=True)
    old.transfers.import_(tmp_path / "f", tenant=None)
    assert not old.transfers.moved(None, "s")
    with pytest.raises(DataError, match="claimed by"):
        Engine().transfers.import_(tmp_path / "f", tenant=None)


def test_what_was_settled_outlives_the_claim_file(tmp_path: Path) -> None:
    old = Engine(ledger=tmp_path / "old")
    old.run(LONG)
    old.transfers.export(tmp_path / "f", tenant=None, session_id="s", move=True)
    Engine().transfers.import_(tmp_path / "f", tenant=None)
    assert old.transfers.moved(None, "s")
    claim_path(tmp_path / "f").unlink()
    assert Ledger(tmp_path / "old").moved(None, "s")


def test_a_claim_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    claim_path(tmp_path / "f").write_text("{}")
    with pytest.raises(DataError, match="not a claim"):
        read_claim(tmp_path / "f")
