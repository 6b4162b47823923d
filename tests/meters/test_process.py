"""Process counters against real processes that burn, hold and write known amounts."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from agentmem.meters import process
from agentmem.meters.base import ProcessReading, Spent, spent
from agentmem.meters.process import ProcessReader, parse_stat

from .children import BUSY, HOG, SLEEP, WRITER, child, said_ready, until


def _now(reader: ProcessReader) -> ProcessReading:
    reading = reader.read()
    assert reading is not None
    return reading


def test_busy_child_uses_cpu_and_idle_child_does_not() -> None:
    with child(BUSY) as busy, child(SLEEP) as idle:
        busy_reader, idle_reader = ProcessReader(busy.pid), ProcessReader(idle.pid)
        start = _now(busy_reader)
        until(lambda: _now(busy_reader).cpu_s > start.cpu_s + 0.5)
        idle_before = _now(idle_reader)
        until(lambda: _now(busy_reader).cpu_s > start.cpu_s + 1.0)
        assert (spent(idle_before, _now(idle_reader)).cpu_s or 0.0) < 0.3
        busy_reader.close()
        idle_reader.close()


def test_own_cpu_time_agrees_with_getrusage() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF)
    reader = ProcessReader(os.getpid())
    reading = reader.read(reaped=False)
    after = resource.getrusage(resource.RUSAGE_SELF)
    reader.close()
    assert reading is not None
    assert before.ru_utime + before.ru_stime - 0.02 <= reading.cpu_s
    assert reading.cpu_s <= after.ru_utime + after.ru_stime + 0.02


def test_cpu_time_is_finer_than_a_clock_tick() -> None:
    reader = ProcessReader(os.getpid())
    seen = {_now(reader).cpu_s for _ in range(20)}
    reader.close()
    assert len(seen) > 5


def test_children_count_only_when_asked_for() -> None:
    with child("subprocess.run([sys.executable, '-c', 'sum(range(10**7))'])\n"
               "print('ready', flush=True); sys.stdin.readline()") as parent:  # fmt: skip
        said_ready(parent)
        reader = ProcessReader(parent.pid)
        own, whole = reader.read(reaped=False), reader.read(reaped=True)
        assert own is not None and whole is not None
        assert whole.cpu_s > own.cpu_s + 0.05
        reader.close()


def test_memory_hog_shows_in_resident_peak_and_proportional_size() -> None:
    with child(HOG) as hog:
        said_ready(hog)
        reading = process.read(hog.pid)
        assert reading is not None and reading.peak_rss_bytes is not None
        assert 80e6 < reading.rss_bytes < 200e6
        assert reading.peak_rss_bytes >= 80e6
        size = process.pss(hog.pid)
        assert size is not None and 80e6 < size <= reading.rss_bytes * 1.05


def test_peak_can_start_anew() -> None:
    program = "x = bytearray(b'x' * 80_000_000); del x; print('ready', flush=True); " + SLEEP
    with child(program) as freed:
        said_ready(freed)
        assert (process.peak_rss(freed.pid) or 0) > 80e6
        if not process.reset_peak(freed.pid):
            pytest.skip("the kernel does not let this user clear a peak")
        assert (process.peak_rss(freed.pid) or 0) < 60e6


def test_writer_is_counted(tmp_path: Path) -> None:
    with child(WRITER, str(tmp_path / "out")) as writer:
        said_ready(writer)
        reading = process.read(writer.pid)
    assert reading is not None
    if reading.write_bytes is None:
        pytest.skip("the kernel does not account I/O to this user")
    if not reading.write_bytes:
        pytest.skip(f"{tmp_path} is not on a disk")
    assert 5_000_000 <= reading.write_bytes < 10_000_000


def test_vanished_process_is_none_and_its_number_is_not_reused() -> None:
    with child(SLEEP) as short:
        reader = ProcessReader(short.pid)
        assert reader.read() is not None and reader.running
    assert reader.read() is None and not reader.running
    assert process.read(short.pid) is None
    assert process.pss(short.pid) is None
    assert not process.reset_peak(short.pid)
    reader.close()


def test_dead_child_that_nobody_waited_for_is_not_running() -> None:
    with child("pass") as short:
        reader = ProcessReader(short.pid)
        until(lambda: reader.read() is not None and not reader.running)
        assert process.read(short.pid) is None
        reader.close()


def test_threads_are_counted_and_a_wait_never_falls() -> None:
    program = (
        "import threading\n"
        "go = threading.Event()\n"
        "def spin():\n"
        "    go.wait(); sum(range(10**5))\n"
        "threads = [threading.Thread(target=spin) for _ in range(70)]\n"
        "[t.start() for t in threads]; print('ready', flush=True)\n"
        "sys.stdin.readline(); go.set(); [t.join() for t in threads]; sys.stdin.readline()"
    )
    with child(program) as spinner:
        said_ready(spinner)
        reader = ProcessReader(spinner.pid)
        waits = [(first := _now(reader)).wait_s]
        assert first.threads == 71
        assert spinner.stdin is not None
        spinner.stdin.write("\n")
        spinner.stdin.flush()
        while (now := _now(reader)).threads != 1:
            waits.append(now.wait_s)
        waits.append(now.wait_s)
        reader.close()
    known = [wait for wait in waits if wait is not None]
    if not known:
        pytest.skip("the kernel does not account run-queue waits")
    assert len(known) == len(waits)
    assert known == sorted(known)
    assert known[-1] > 0.0


def test_reader_gives_its_descriptors_back() -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = count()
    readers = [ProcessReader(os.getpid()) for _ in range(20)]
    for reader in readers:
        reader.read()
    assert count() >= before + 60
    for reader in readers:
        reader.close()
    assert count() == before


def test_name_with_spaces_and_brackets_does_not_shift_the_fields() -> None:
    stat = parse_stat(
        b"77 (a) b (c) S 1 5 6 0 -1 4194304 1 2 3 4 150 50 30 20 20 0 9 0 4242 1 2 3\n"
    )
    assert (stat.parent, stat.group, stat.session, stat.threads) == (1, 5, 6, 9)
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    assert stat.cpu_s == pytest.approx(200 * tick_s)
    assert stat.children_cpu_s == pytest.approx(50 * tick_s)
    assert stat.started_ticks == 4242


def test_spent_is_unknown_where_a_reading_is() -> None:
    one = ProcessReading(1.0, None, 10, None, 5, None, 1)
    two = ProcessReading(3.5, 0.25, 10, None, 9, 7, 1)
    assert spent(one, two) == Spent(cpu_s=2.5, wait_s=None, read_bytes=4, write_bytes=None)
    assert spent(None, two) == spent(one, None) == Spent()
