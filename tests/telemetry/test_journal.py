"""The journal: what is written comes back, and a kill or a full disk costs at most one row."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmem import records
from agentmem.errors import AccountingError, DataError
from agentmem.telemetry.journal import Journal, encode, read_rows, repair

from .rows import ROWS, make_call, make_footprint, make_window


def _write(path: Path, rows: list[records.Row]) -> None:
    with Journal(path) as journal:
        for row in rows:
            journal.write(row)


@settings(max_examples=60, deadline=None)
@given(st.lists(ROWS, max_size=6))
def test_random_rows_come_back_equal(rows: list[records.Row]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        _write(path, rows)
        assert read_rows(path) == rows


@settings(max_examples=60, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=4), st.data())
def test_cut_anywhere_leaves_a_prefix_and_can_go_on(
    rows: list[records.Row], data: st.DataObject
) -> None:
    content = b"".join(map(encode, rows))
    cut = data.draw(st.integers(0, len(content)))
    whole = content[:cut].count(b"\n")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        path.write_bytes(content[:cut])
        assert read_rows(path) == rows[:whole]
        with Journal.reopen(path) as journal:
            journal.write(rows[-1])
        assert read_rows(path) == [*rows[:whole], rows[-1]]
        torn = content[:cut].rpartition(b"\n")[2]
        side = path.with_name("journal.jsonl.torn")
        assert (side.read_bytes() if side.exists() else b"") == (torn + b"\n" if torn else b"")


def test_tail_longer_than_a_block_is_moved_whole(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    _write(path, [make_footprint(1)])
    torn = encode(make_footprint(2, store="x" * 200_000))[:-1]
    with path.open("ab") as file:
        file.write(torn)
    assert repair(path) == len(torn)
    assert (tmp_path / "journal.jsonl.torn").read_bytes() == torn + b"\n"
    assert read_rows(path) == [make_footprint(1)]


def test_opening_a_torn_journal_without_repair_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(encode(make_footprint(1))[:-5])
    with pytest.raises(DataError, match="torn"):
        Journal(path)
    assert path.stat().st_size == len(encode(make_footprint(1))) - 5


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (b"{\n", "no JSON at column 2"),
        (b"[1]\n", "no JSON object"),
        (b"{}\n", "it does not say which row it is"),
        (b'{"row":"Nothing"}\n', "unknown row type 'Nothing'"),
        (b'{"row":"Call"}\n', "a Call row without 'call_id' and 44 more"),
        (encode(make_footprint(3)).replace(b'"size_', b'"sise_'), "row without 'size_bytes'"),
        (b"\x00\xff\n", "no JSON at column 1"),
        (b"\n", "no JSON at column 1"),
    ],
)
def test_corrupt_earlier_line_is_named(tmp_path: Path, bad: bytes, says: str) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(encode(make_footprint(1)) + bad + encode(make_footprint(2)))
    with pytest.raises(DataError) as caught:
        read_rows(path)
    told = str(caught.value)
    assert told.startswith(f"{path}: line 2 is corrupt: ") and told.endswith(says)
    assert "\n" not in told and len(told) < len(str(path)) + 80


def test_missing_journal_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read the journal"):
        read_rows(tmp_path / "none.jsonl")
    with pytest.raises(DataError, match="cannot open the journal"):
        Journal(tmp_path / "no-folder" / "journal.jsonl")


def test_row_with_nan_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl") as journal:
        with pytest.raises(AccountingError, match="Call row"):
            journal.write(make_call(latency_s=float("nan")))
        journal.write(make_window())
    assert read_rows(journal.path) == [make_window()]


def test_threads_do_not_mix_their_lines(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl") as journal:

        def write_many(start: int) -> None:
            for n in range(start, start + 200):
                journal.write(make_footprint(n, store="x" * (n % 300)))

        threads = [threading.Thread(target=write_many, args=(200 * t,)) for t in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    rows = read_rows(journal.path)
    assert journal.rows_written == 800
    assert sorted(r.size_bytes for r in rows if isinstance(r, records.Footprint)) == list(
        range(800)
    )


def test_second_writer_is_refused_until_the_first_closes(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = Journal(path)
    with pytest.raises(DataError, match="another process is writing"):
        Journal(path)
    first.close()
    first.close()
    Journal(path).close()


def test_rows_survive_a_kill_of_the_writer(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from agentmem.telemetry.journal import Journal\n"
        "from agentmem.records import Footprint\n"
        "j = Journal(Path(sys.argv[1]))\n"
        "for n in range(50): j.write(Footprint('s', 'y', 'h', 'index', n, 'closed'))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "journal.jsonl"
    done = subprocess.run([sys.executable, "-c", program, str(path)], check=False, timeout=60)
    assert done.returncode == -9
    assert len(read_rows(path)) == 50
    Journal.reopen(path).close()


def test_size_limit_is_one_clear_line_and_tears_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    footprints = [make_footprint(n) for n in range(5)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    line = len(encode(footprints[0]))
    journal = Journal(path)
    try:
        # Room for two and a half rows: the third comes back short, the fourth fails outright.
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 * line + line // 2, hard))
        journal.write(footprints[0])
        journal.write(footprints[1])
        for row in footprints[2:4]:
            with pytest.raises(DataError, match="earlier rows are whole") as caught:
                journal.write(row)
            assert "\n" not in str(caught.value)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert read_rows(path) == footprints[:2]
    with pytest.raises(DataError, match="earlier rows are whole"):
        journal.write(footprints[4])  # it would fit, behind a hole
    journal.close()
    with Journal(path) as journal:
        journal.write(footprints[4])
    assert read_rows(path) == [*footprints[:2], footprints[4]]
    assert all(json.loads(text) for text in path.read_text().splitlines())


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_full_disk_keeps_the_rows_that_fitted(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)],
        check=False, capture_output=True,
    )  # fmt: skip
    if mounted.returncode:
        pytest.skip(f"mount is not permitted here: {mounted.stderr.decode().strip()}")
    try:
        journal = Journal(disk / "journal.jsonl")
        with pytest.raises(DataError, match="No space left"):
            for n in range(10_000):
                journal.write(make_footprint(n))
        written = journal.rows_written
        journal.close()
        assert written > 100
        assert read_rows(journal.path) == [make_footprint(n) for n in range(written)]
    finally:
        subprocess.run(["umount", str(disk)], check=True)
