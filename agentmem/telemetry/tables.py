"""A journal as Parquet tables, one per row type, for readers that want columns.

The tables hold the rows as they were written, calls begun and reattributions included; working
them into figures is the analysis's part. Columns and their types come from the row's dataclass;
the engine's usage object becomes a JSON string.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from agentmem import records
from agentmem.errors import DataError
from agentmem.telemetry.journal import iter_rows

_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


def _table_name(row_type: str) -> str:
    """`CallBegin` is in call_begins, `Query` in queries."""
    words = _CAPITAL.sub("_", row_type).lower()
    return words[:-1] + "ies" if words.endswith("y") else words + "s"


TABLES: dict[type[Any], str] = {t: _table_name(name) for name, t in records.ROW_TYPES.items()}
"""Name of each row type's table."""

_BATCH_ROWS = 20_000
_SCALARS = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def schema(row_type: type[Any]) -> pa.Schema:
    """Arrow schema of a row type, with the version of the run folder in its metadata."""
    hints = typing.get_type_hints(row_type)
    fields = [_field(f.name, hints[f.name]) for f in dataclasses.fields(row_type)]
    return pa.schema(fields, metadata={"agentmem.run_format": str(records.RUN_FORMAT)})


def write_tables(journal: Path, folder: Path) -> dict[str, Path]:
    """Write every table of a journal into `folder`, empty ones too; paths by table name.

    Tables already there are replaced, each in one step. Memory use does not grow with the journal.
    Raises DataError when the journal is corrupt or the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    writers = {
        row_type: _Writer(folder / f"{name}.parquet", row_type) for row_type, name in TABLES.items()
    }
    try:
        for row in iter_rows(journal):
            writers[type(row)].add(row)
        return {TABLES[row_type]: writer.finish() for row_type, writer in writers.items()}
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{folder}: cannot write the tables: {error}") from error
    finally:
        for writer in writers.values():
            writer.abandon()


def read_table(folder: Path, name: str) -> pa.Table:
    """One table. Raises DataError for a missing table or one of another format version."""
    path = folder / f"{name}.parquet"
    try:
        with path.open("rb") as file:
            table = pq.read_table(file)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: cannot read the table: {error}") from error
    version = (table.schema.metadata or {}).get(b"agentmem.run_format", b"none").decode()
    if version not in {str(records.RUN_FORMAT), str(records.RUN_FORMAT - 1)}:
        raise DataError(
            f"{path}: format {version} cannot be read; this version writes {records.RUN_FORMAT}"
        )
    return table


class _Writer:
    """Collects rows of one type and writes them in batches beside the final file."""

    def __init__(self, path: Path, row_type: type[Any]) -> None:
        self._path, self._part = path, path.with_name(path.name + ".part")
        self._schema = schema(row_type)
        self._names = self._schema.names
        self._rows: list[records.Row] = []
        # A file and not its name: arrow takes no name that is not UTF-8.
        self._sink = self._part.open("wb")
        self._file = pq.ParquetWriter(self._sink, self._schema, compression="zstd")

    def add(self, row: records.Row) -> None:
        self._rows.append(row)
        if len(self._rows) >= _BATCH_ROWS:
            self._flush()

    def finish(self) -> Path:
        """Write what is left and put the file in its place."""
        self._flush()
        self._close()
        return self._part.replace(self._path)

    def abandon(self) -> None:
        """Close and remove the unfinished file, if any; the earlier table stays."""
        with contextlib.suppress(OSError, pa.ArrowException):  # as on a disk that is full
            self._close()
        self._part.unlink(missing_ok=True)

    def _close(self) -> None:
        try:
            self._file.close()
        finally:
            self._sink.close()

    def _flush(self) -> None:
        columns = {name: [_cell(getattr(r, name)) for r in self._rows] for name in self._names}
        self._file.write_table(pa.table(columns, schema=self._schema))
        self._rows.clear()


def _field(name: str, hint: Any) -> pa.Field:
    """Column of a field; `X | None` is X, nullable."""
    nullable = False
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        nullable = True
        (hint,) = [arg for arg in typing.get_args(hint) if arg is not type(None)]
    return pa.field(name, _column_type(hint), nullable=nullable)


def _column_type(hint: Any) -> pa.DataType:
    origin = typing.get_origin(hint)
    if origin is typing.Literal or origin is Mapping:
        return pa.string()
    if origin is tuple:
        return pa.list_(_column_type(typing.get_args(hint)[0]))
    return _SCALARS[hint]


def _cell(value: Any) -> Any:
    """A value as Arrow takes it; lone surrogates, which UTF-8 cannot hold, are replaced."""
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, tuple):
        return [_cell(item) for item in value]
    if isinstance(value, Mapping):
        return json.dumps(value, separators=(",", ":"))
    return value


def _clean(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
