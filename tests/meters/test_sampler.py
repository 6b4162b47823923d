"""The sampler: one sample per tree and tick, by role, and nothing kept of what has ended."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from agentmem.errors import DataError, UsageError
from agentmem.meters.base import NoSampler
from agentmem.meters.clock import RunClock
from agentmem.meters.sampler import Sampler
from agentmem.records import Sample

from .children import BUSY, HOG, SLEEP, child, said_ready, until


def test_thread_samples_each_role_with_growing_counters() -> None:
    rows: list[Sample] = []
    clock = RunClock()
    sampler = Sampler(clock, rows.append, hz=20)
    with child(BUSY) as worker, child(HOG) as engine:
        said_ready(engine)
        sampler.watch("worker:busy", worker.pid)
        sampler.watch("engine", engine.pid)
        sampler.watch("gateway", os.getpid(), tree=False)
        sampler.start()
        until(lambda: [r for r in rows if r.role == "worker:busy" and r.cpu_s > 0.3] != [])
        sampler.stop()
        roles = {role: [r for r in rows if r.role == role] for role in {r.role for r in rows}}
        assert set(roles) == {"worker:busy", "engine", "gateway"}
        for samples in roles.values():
            assert [r.at_s for r in samples] == sorted({r.at_s for r in samples})
            assert [r.cpu_s for r in samples] == sorted(r.cpu_s for r in samples)
            assert all(r.pss_bytes is None for r in samples)
        assert {r.pid for r in roles["gateway"]} == {os.getpid()}
        assert min(r.rss_bytes for r in roles["engine"]) > 80e6
        assert rows[-1].at_s <= clock()
    assert sampler.failure is None
    assert sampler.cost_s > 0.0


def test_readings_by_pid_and_role_and_none_after_the_end() -> None:
    sampler = Sampler(RunClock(), lambda _: None)
    with child(SLEEP) as worker:
        sampler.watch("worker:one", worker.pid)
        by_pid, by_role = sampler.reading(worker.pid), sampler.reading("worker:one")
        assert by_pid is not None and by_role is not None
        assert by_role.cpu_s >= by_pid.cpu_s
        assert sampler.reading("worker:two") is None
        assert sampler.reading(os.getpid()) is None
    assert sampler.reading(worker.pid) is None
    sampler.tick()
    with pytest.raises(UsageError, match=r"worker:one.*has ended"):
        sampler.watch("worker:one", worker.pid)
    sampler.stop()


def test_new_child_is_found_by_a_later_tick_but_not_under_another_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agentmem.meters.sampler._SCAN_S", 0.0)
    sampler = Sampler(RunClock(), lambda _: None)
    start = "subprocess.Popen([sys.executable, '-c', 'input()'])"
    program = f"sys.stdin.readline(); p = {start}\nprint('ready', flush=True); p.wait()"
    with child(program) as parent:
        sampler.watch("worker:p", parent.pid)
        assert parent.stdin is not None
        parent.stdin.write("\n")
        parent.stdin.flush()
        said_ready(parent)

        def both() -> bool:
            sampler.tick()
            reading = sampler.reading("worker:p")
            return reading is not None and reading.processes == 2

        until(both)
        sampler.watch("everything", os.getpid())
        sampler.tick()
        whole = sampler.reading("everything")
        assert whole is not None and whole.processes == 1
        sampler.stop()


def test_mark_is_the_only_sample_with_proportional_size() -> None:
    rows: list[Sample] = []
    sampler = Sampler(lambda: 7.0, rows.append)
    with child(HOG) as hog:
        said_ready(hog)
        sampler.watch("engine", hog.pid)
        sampler.tick()
        assert sampler.mark("engine") == rows[-1]
        assert rows[0].pss_bytes is None
        assert (rows[-1].pss_bytes or 0) > 80e6
        assert (rows[-1].at_s, rows[-1].role, rows[-1].pid) == (7.0, "engine", hog.pid)
        assert sampler.mark("nobody") is None
        assert len(rows) == 2
    sampler.stop()


def test_peak_can_be_had_per_phase() -> None:
    sampler = Sampler(RunClock(), lambda _: None)
    program = "x = bytearray(b'x' * 80_000_000); print('ready', flush=True); sys.stdin.readline()\n"
    with child(program + "del x; print('ready', flush=True); sys.stdin.readline()") as hog:
        said_ready(hog)
        sampler.watch("engine", hog.pid)
        assert hog.stdin is not None
        hog.stdin.write("\n")
        hog.stdin.flush()
        said_ready(hog)
        before = sampler.reading("engine")
        if not sampler.reset_peak("engine"):
            pytest.skip("the kernel does not let this user clear a peak")
        after = sampler.reading("engine")
        assert before is not None and after is not None
        assert (before.peak_rss_bytes or 0) > 80e6 > (after.peak_rss_bytes or 0)
    sampler.stop()


def test_full_disk_ends_sampling_and_is_kept() -> None:
    def full(_: Sample) -> None:
        raise DataError("disk full")

    sampler = Sampler(RunClock(), full, hz=50)
    sampler.watch("gateway", os.getpid(), tree=False)
    sampler.start()
    until(lambda: sampler.failure is not None)
    sampler.stop()
    assert str(sampler.failure) == "disk full"


def test_other_things_are_done_at_every_tick() -> None:
    done = threading.Semaphore(0)
    sampler = Sampler(RunClock(), lambda _: None, hz=50, also=(done.release,))
    sampler.start()
    assert all(done.acquire(timeout=30) for _ in range(3))
    sampler.stop()


def test_stop_gives_descriptors_back_and_leaves_processes_alone() -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    with child(SLEEP) as worker:
        before = count()
        sampler = Sampler(RunClock(), lambda _: None)
        sampler.watch("worker:x", worker.pid)
        sampler.watch("worker:x", worker.pid)
        assert count() > before
        sampler.unwatch(worker.pid)
        sampler.unwatch(worker.pid)
        assert count() == before
        sampler.watch("worker:x", worker.pid)
        sampler.stop()
        assert count() == before
        assert worker.poll() is None


def test_null_sampler_knows_nothing() -> None:
    sampler = NoSampler()
    sampler.watch("engine", os.getpid())
    sampler.start()
    assert sampler.reading("engine") is None
    sampler.stop()
