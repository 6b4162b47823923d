"""One session out of an engine and into another: contents, refusals, all or nothing."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from agentmem.engine.kv import sessionfile
from agentmem.engine.kv.layout import KVKind
from agentmem.engine.kv.ownership import no_step
from agentmem.errors import DataError
from tests.engine.kv.engines import Engine
from tests.engine.kv.toys import idle

LONG = list(range(22))
OTHER = [*range(8), *range(50, 57)]


@pytest.mark.parametrize("kind", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("windows", [(None,), (None, 6), (6,)])
def test_a_session_goes_on_where_it_was(
    tmp_path: Path, kind: KVKind, windows: tuple[int | None, ...]
) -> None:
    old, new = Engine(*windows, kind=kind), Engine(*windows, kind=kind)
    old.run(LONG)
    old.run(OTHER)
    old.run([7, 7, 7, 7, 7], "another")
    out = old.transfers.export(tmp_path / "f", tenant=None, session_id="s")
    into = new.transfers.import_(tmp_path / "f", tenant="else")
    assert out.size_bytes == (tmp_path / "f").stat().st_size
    assert (into.session_id, into.blocks, into.tokens) == ("s", out.blocks, out.tokens)
    assert idle(new.kv)
    assert new.run([*LONG, 1, 2], tenant="else") == 22
    assert new.run([*OTHER, 1, 2], tenant="else") == 15
    assert new.run([7, 7, 7, 7, 7], tenant="else") == 0
    assert new.run([*LONG, 1, 2], tenant=None) == 0


def test_counts_go_along_and_a_copy_leaves_the_original(tmp_path: Path) -> None:
    old, new = Engine(), Engine()
    old.run(LONG)
    old.run([*LONG, 1])
    out = old.transfers.export(tmp_path / "f", tenant=None, session_id="s")
    assert (out.epoch, out.moved) == (1, False)
    for _ in range(2):
        new.transfers.import_(tmp_path / "f", tenant=None, session_id="t")
    stats = new.kv.session(None, "t")
    assert stats is not None
    assert (stats.requests, stats.cached_tokens, stats.computed_tokens) == (2, 22, 23)
    assert stats.running == 0
    assert not old.transfers.moved(None, "s")
    assert old.run([*LONG, 1, 2]) == 23


def test_what_is_cached_already_is_not_taken_twice(tmp_path: Path) -> None:
    old, new = Engine(), Engine()
    old.run(LONG)
    new.run(LONG[:12], None)
    old.transfers.export(tmp_path / "f", tenant=None, session_id="s")
    new.transfers.import_(tmp_path / "f", tenant=None)
    assert new.kv.counts().cached_blocks == 6
    assert new.run([*LONG, 1]) == 22


@pytest.mark.parametrize("field", ["weights", "mode", "backend", "tokenizer"])
def test_every_mismatch_is_refused_with_its_reason(tmp_path: Path, field: str) -> None:
    old, new = Engine(), Engine(**{field: "x"})
    old.run(LONG)
    old.transfers.export(tmp_path / "f", tenant=None, session_id="s", move=True)
    with pytest.raises(DataError, match=rf"{field} is \w+, here x"):
        new.transfers.import_(tmp_path / "f", tenant=None)
    untouched(new, tmp_path)


def test_kind_and_geometry_must_fit(tmp_path: Path) -> None:
    old = Engine(None, 6)
    old.run(LONG)
    old.transfers.export(tmp_path / "f", tenant=None, session_id="s")
    for new, reason in (
        (Engine(None, 6, kind="bf16"), "kind is fp32"),
        (Engine(None, 7), "groups"),
    ):
        with pytest.raises(DataError, match=reason):
            new.transfers.import_(tmp_path / "f", tenant=None)
        untouched(new, tmp_path)


@pytest.mark.parametrize("version", [0, 2])
def test_other_versions_are_refused(tmp_path: Path, version: int) -> None:
    old, new = Engine(), Engine()
    old.run(LONG)
    old.transfers.export(tmp_path / "f", tenant=None, session_id="s")
    content = bytearray((tmp_path / "f").read_bytes())
    struct.pack_into("<I", content, len(sessionfile.MAGIC), version)
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(DataError, match=f"version {version}"):
        new.transfers.import_(tmp_path / "f", tenant=None)
    untouched(new, tmp_path)


def test_any_damage_is_refused(tmp_path: Path) -> None:
    old, new = Engine(), Engine()
    old.run(LONG[:9])
    old.transfers.export(tmp_path / "whole", tenant=None, session_id="s", move=True)
    whole = (tmp_path / "whole").read_bytes()
    for at in range(0, len(whole), 7):
        flipped = bytearray(whole)
        flipped[at] ^= 0x10
        for content in (bytes(flipped), whole[:at]):
            (tmp_path / "f").write_bytes(content)
            with pytest.raises(DataError):
                new.transfers.import_(tmp_path / "f", tenant=None)
    untouched(new, tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": ((0, (1, 2, 3, 4)),)},
        {"nodes": ((-1, (1, 2, 3)), (0, (1, 2, 3, 4)))},
        {"nodes": ((-1, (1, 2, 3, 4, 5)),)},
        {"nodes": ((-1, (1, 2, 3, 1 << 32)),)},
        {"present": ((0, 0),)},
        {"present": ((9,),)},
        {"present": ()},
        {"epoch": 0},
    ],
)
def test_a_header_that_contradicts_itself_is_refused(
    tmp_path: Path, change: dict[str, object]
) -> None:
    old, new = Engine(), Engine()
    old.run(LONG[:9])
    old.transfers.export(tmp_path / "f", tenant=None, session_id="s")
    with (tmp_path / "f").open("rb") as file:
        header = sessionfile.read_header(file, tmp_path / "f")
    with (tmp_path / "g").open("wb") as out:
        sessionfile.write(out, replace(header, **change), [], no_step)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="contradicts"):
        new.transfers.import_(tmp_path / "g", tenant=None)
    untouched(new, tmp_path)


def test_missing_pages_are_refused(tmp_path: Path) -> None:
    old, new = Engine(), Engine()
    old.run(LONG[:9])
    old.transfers.export(tmp_path / "f", tenant=None, session_id="s")
    with (tmp_path / "f").open("rb") as file:
        header = sessionfile.read_header(file, tmp_path / "f")
    with (tmp_path / "g").open("wb") as out:
        sessionfile.write(out, header, [b"1234"], no_step)
    with pytest.raises(DataError, match="not as many"):
        new.transfers.import_(tmp_path / "g", tenant=None)
    untouched(new, tmp_path)


def test_a_copy_does_not_revive_a_session_that_moved(tmp_path: Path) -> None:
    old, new = Engine(), Engine()
    old.run(LONG)
    old.transfers.export(tmp_path / "copy", tenant=None, session_id="s")
    old.transfers.export(tmp_path / "f", tenant=None, session_id="s", move=True)
    new.transfers.import_(tmp_path / "f", tenant=None)
    with pytest.raises(DataError, match="has moved"):
        old.transfers.import_(tmp_path / "copy", tenant=None)
    old.transfers.import_(tmp_path / "copy", tenant=None, session_id="t")
    assert old.run([*LONG, 1], "t") == 22


def test_a_missing_file_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        Engine().transfers.import_(tmp_path / "f", tenant=None)


def test_no_room_is_refused_before_the_claim(tmp_path: Path) -> None:
    old, new = Engine(), Engine(blocks=6)
    old.run(LONG)
    old.transfers.export(tmp_path / "f", tenant=None, session_id="s", move=True)
    with pytest.raises(DataError, match="no room: 6 blocks wanted, 5 can be had"):
        new.transfers.import_(tmp_path / "f", tenant=None)
    untouched(new, tmp_path)


def test_what_cannot_be_exported_is_said(tmp_path: Path) -> None:
    old = Engine()
    with pytest.raises(DataError, match="not known"):
        old.transfers.export(tmp_path / "f", tenant=None, session_id="s")
    old.run(LONG, tenant="a")
    with pytest.raises(DataError, match="not known"):
        old.transfers.export(tmp_path / "f", tenant="b", session_id="s")
    with pytest.raises(DataError, match="no such folder"):
        old.transfers.export(tmp_path / "no" / "f", tenant="a", session_id="s")
    (tmp_path / "f").write_text("mine")
    with pytest.raises(DataError, match="exists"):
        old.transfers.export(tmp_path / "f", tenant="a", session_id="s")
    assert re.match("mine", (tmp_path / "f").read_text())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["f"]


def untouched(engine: Engine, folder: Path) -> None:
    counts = engine.kv.counts()
    assert (counts.used_blocks, counts.cached_blocks, counts.sessions) == (0, 0, 0)
    assert engine.transfers.ledger.epoch(None, "s") == 1
    assert not list(folder.glob("*.claim"))
