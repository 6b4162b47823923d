"""Parquet tables: every row in the right table, unknown stays null, nothing half written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmem import records
from agentmem.errors import DataError
from agentmem.telemetry import tables
from agentmem.telemetry.journal import Journal
from agentmem.telemetry.tables import TABLES, read_table, schema, write_tables

from .rows import ROWS, make_call, make_footprint, make_window


def _journal(folder: Path, rows: list[records.Row]) -> Path:
    path = folder / "journal.jsonl"
    path.unlink(missing_ok=True)
    with Journal(path) as journal:
        for row in rows:
            journal.write(row)
    return path


def test_every_row_type_has_a_table_of_its_own() -> None:
    names = set(TABLES.values())
    assert len(names) == len(records.ROW_TYPES)
    assert names >= {"calls", "call_begins", "units", "queries", "windows", "samples", "failures"}


def test_schema_follows_the_dataclass() -> None:
    call = schema(records.Call)
    assert call.field("input_tokens") == pa.field("input_tokens", pa.int64(), nullable=True)
    assert call.field("start_s") == pa.field("start_s", pa.float64(), nullable=False)
    assert call.field("outcome").type == call.field("engine").type == pa.string()
    golds = schema(records.Query).field("golds")
    assert golds.type == pa.list_(pa.string()) and not golds.nullable


def test_values_survive_and_unknown_is_null(tmp_path: Path) -> None:
    usage = {"version": 1, "queue_s": 0.25, "nested": {"a": [1, None]}}
    rows = [make_call("a", engine=usage), make_call("b", input_tokens=None), make_window()]
    paths = write_tables(_journal(tmp_path, rows), tmp_path / "tables")
    assert set(paths) == set(TABLES.values())
    calls = read_table(tmp_path / "tables", "calls").to_pylist()
    assert [c["input_tokens"] for c in calls] == [100, None]
    assert json.loads(calls[0]["engine"]) == usage and calls[1]["engine"] is None
    assert read_table(tmp_path / "tables", "windows").num_rows == 1
    empty = read_table(tmp_path / "tables", "failures")
    assert empty.num_rows == 0 and empty.schema.names[0] == "scope"
    assert pq.ParquetFile(paths["calls"]).metadata.row_group(0).column(0).compression == "ZSTD"


@settings(max_examples=10, deadline=None)
@given(rows=st.lists(ROWS, max_size=8))
def test_random_rows_land_in_their_tables(
    rows: list[records.Row], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("run")
    write_tables(_journal(folder, rows), folder)
    for row_type, name in TABLES.items():
        expected = [r for r in rows if type(r) is row_type]
        found = read_table(folder, name).to_pylist()
        assert len(found) == len(expected)
        for row, cells in zip(expected, found, strict=True):
            for key, cell in cells.items():
                value = getattr(row, key)
                if value is None or isinstance(value, int | float):
                    assert cell == value, key


def test_a_folder_whose_name_is_not_utf_8(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(bytes(tmp_path) + b"/odd \xff\xfe"))
    write_tables(_journal(tmp_path, [make_window()]), folder)
    assert read_table(folder, "windows").num_rows == 1


def test_batches_keep_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_BATCH_ROWS", 7)
    rows: list[records.Row] = [make_footprint(n) for n in range(50)]
    write_tables(_journal(tmp_path, rows), tmp_path)
    sizes = read_table(tmp_path, "footprints").column("size_bytes").to_pylist()
    assert sizes == list(range(50))


def test_corrupt_journal_leaves_the_earlier_tables(tmp_path: Path) -> None:
    path = _journal(tmp_path, [make_footprint(1)])
    write_tables(path, tmp_path / "tables")
    path.write_bytes(b"garbage\n" + path.read_bytes())
    with pytest.raises(DataError, match="line 1 is corrupt"):
        write_tables(path, tmp_path / "tables")
    assert read_table(tmp_path / "tables", "footprints").num_rows == 1
    assert not list((tmp_path / "tables").glob("*.part"))


def test_unreadable_and_foreign_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read the table"):
        read_table(tmp_path, "calls")
    (tmp_path / "calls.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(DataError, match="cannot read the table"):
        read_table(tmp_path, "calls")
    future = pa.table({"a": [1]}).replace_schema_metadata({"agentmem.run_format": "99"})
    pq.write_table(future, tmp_path / "calls.parquet")
    with pytest.raises(DataError, match="format 99"):
        read_table(tmp_path, "calls")
