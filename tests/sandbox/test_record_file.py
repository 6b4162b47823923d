from __future__ import annotations

from pathlib import Path

import pytest

from agentmem.memory import RecordFile, Turn, Unit, cut, passages


def test_records_survive_and_versions_rise(tmp_path: Path) -> None:
    path = str(tmp_path / "r.jsonl")
    file = RecordFile(path)
    assert file.version == 0 and list(file.read()) == []
    file.append({"text": "nul \x00 lone \ud800 \U0001f9e0"})
    file.append([1, 2])
    file.close()
    file = RecordFile(path)
    assert file.version == 2
    assert list(file.read()) == [{"text": "nul \x00 lone \ud800 \U0001f9e0"}, [1, 2]]
    file.rewrite([[1, 2]])
    assert file.version == 3
    file.append("more")
    file.close()
    file = RecordFile(path)
    assert (file.version, list(file.read())) == (4, [[1, 2], "more"])
    file.rewrite([])
    file.close()
    file = RecordFile(path)
    assert (file.version, list(file.read())) == (5, [])


def test_a_torn_tail_is_cut_at_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    file = RecordFile(str(path))
    file.append({"a": "first"})
    whole = len(path.read_bytes())
    file.append({"b": "second"})
    file.close()
    data = path.read_bytes()
    for size in range(whole, len(data)):
        path.write_bytes(data[:size])
        file = RecordFile(str(path))
        assert list(file.read()) == [{"a": "first"}]
        file.append("next")
        assert list(file.read()) == [{"a": "first"}, "next"]
        file.close()


def test_damage_elsewhere_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    file = RecordFile(str(path))
    file.append({"a": "first"})
    file.append({"b": "second"})
    file.close()
    path.write_bytes(path.read_bytes().replace(b'{"a"', b"{a{"))
    with pytest.raises(ValueError, match="record 1 is damaged"):
        RecordFile(str(path))


def test_cutting_loses_nothing_but_blanks() -> None:
    text = "One sentence here. Another one follows\nand a line. " + "x" * 50 + " end"
    pieces = cut(text, 20)
    assert "".join(pieces) == text
    assert all(len(piece) <= 20 for piece in pieces)
    assert pieces[0] == "One sentence here. "
    assert cut("  \n ", 10) == [] and cut("", 10) == []


def test_passages_are_turns_with_their_ids() -> None:
    turns = (
        Turn("D1:1", "Ann", "user", "Hello there", "2023-05-08T13:56:00"),
        Turn("D1:2", "", "assistant", "word " * 5, None),
        Turn("D1:3", "Bo", "user", " "),
    )
    found = passages(Unit("u", "ann", "ignored", turns, "2023-05-08"), max_chars=15)
    assert [p.text for p in found] == ["Ann: Hello there", "word word word ", "word word "]
    assert found[0].shown == "[8 May 2023, 13:56] Ann: Hello there"
    assert found[1].shown == "[8 May 2023] word word word "
    assert [p.source_ids for p in found] == [("D1:1",), ("D1:2",), ("D1:2",)]
    [bare] = passages(Unit("u", "ann", "plain text"))
    assert (bare.text, bare.shown, bare.source_ids) == ("plain text", "plain text", None)
