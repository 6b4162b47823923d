"""The machine as a whole: clock, contention, control group, facts, footprints, the probe."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest

from agentmem.meters import cgroup, contention, host, probe
from agentmem.meters.clock import RunClock
from agentmem.meters.contention import Contention
from agentmem.meters.footprint import FolderSize, measure


def test_clock_counts_from_zero_and_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = RunClock()
    assert 0.0 <= clock() < 60.0
    monkeypatch.setattr(time, "time", lambda: 0.0)
    times = [clock() for _ in range(100)]
    assert times == sorted(times)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", clock.created)


def test_resumed_clock_goes_on_from_the_journal() -> None:
    clock = RunClock(resumed_at_s=120.0)
    assert 120.0 <= clock() < 180.0
    assert abs(time.time_ns() - clock.zero_ns - clock() * 1e9) < 60e9


def test_contention_reads_this_machine_and_only_grows() -> None:
    before = contention.read()
    sum(range(2_000_000))
    past = contention.read().since(before)
    assert past.busy_s is not None and past.busy_s >= 0.0
    assert past.stall_s is None or past.stall_s >= 0.0


def test_contention_fields_come_from_the_right_columns(tmp_path: Path) -> None:
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    (tmp_path / "stat").write_text("cpu  1 2 4 100 8 16 32 64 1000 1000\ncpu0 1 1\n")
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure" / "cpu").write_text(
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 total=7\n"
    )
    now = contention.read(tmp_path)
    assert now.stall_s == pytest.approx(2.5)
    assert now.busy_s == pytest.approx((1 + 2 + 4 + 16 + 32) * tick_s)
    assert now.idle_s == pytest.approx(108 * tick_s)
    assert now.steal_s == pytest.approx(64 * tick_s)


def test_machine_without_counters_is_unknown_not_zero(tmp_path: Path) -> None:
    nothing = Contention(None, None, None, None)
    assert contention.read(tmp_path) == nothing
    assert contention.read().since(nothing) == nothing


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_limits_of_version_2_are_the_tightest_on_the_way_up(tmp_path: Path) -> None:
    root, own = tmp_path / "cg", tmp_path / "own"
    own.write_text("0::/a/b\n")
    _write(root / "cgroup.controllers", "cpu memory")
    _write(root / "a/memory.max", "4000000000")
    _write(root / "a/b/memory.max", "max")
    _write(root / "a/cpu.max", "max 100000")
    _write(root / "a/b/cpu.max", "150000 100000")
    assert cgroup.limits(root, own) == cgroup.Limits("v2", 4_000_000_000, 1.5)


def test_limits_of_version_1(tmp_path: Path) -> None:
    root, own = tmp_path / "cg", tmp_path / "own"
    own.write_text("3:cpu,cpuacct:/job\n2:memory:/job/inner\n0::/\n")
    _write(root / "memory/memory.limit_in_bytes", "9223372036854771712")
    _write(root / "memory/job/memory.limit_in_bytes", "2000000000")
    _write(root / "cpu/job/cpu.cfs_quota_us", "50000")
    _write(root / "cpu/job/cpu.cfs_period_us", "100000")
    _write(root / "cpu/cpu.cfs_quota_us", "-1")
    _write(root / "cpu/cpu.cfs_period_us", "100000")
    assert cgroup.limits(root, own) == cgroup.Limits("v1", 2_000_000_000, 0.5)


def test_no_control_group_is_no_limit(tmp_path: Path) -> None:
    own = tmp_path / "own"
    assert cgroup.limits(tmp_path, own) == cgroup.Limits("none")
    own.write_text("0::/\n")
    assert cgroup.limits(tmp_path, own) == cgroup.Limits("none")
    assert cgroup.limits().version in ("v1", "v2", "none")


def test_facts_of_this_machine_are_json_and_true() -> None:
    facts = host.facts()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["cores"] == os.cpu_count()
    page_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert facts["memory_bytes"] == pytest.approx(page_bytes, rel=0.01)
    assert facts["torch"] is None or re.match(r"\d+\.\d+", str(facts["torch"]))


def test_facts_from_a_known_cpu_and_from_none(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(
        "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu avx2 avx512f amx_bf16 hypervisor\n"
        "\nprocessor\t: 1\nmodel name\t: Other\n"
    )
    (tmp_path / "meminfo").write_text("MemTotal:       1000 kB\n")
    facts = host.facts(tmp_path)
    assert facts["cpu_model"] == "Some CPU"
    assert facts["cpu_flags"] == ["avx2", "avx512f", "amx_bf16"]
    assert facts["virtual_machine"] is True
    assert facts["memory_bytes"] == 1_024_000
    nothing = host.facts(tmp_path / "none")
    assert nothing["memory_bytes"] is nothing["virtual_machine"] is None


def test_footprint_counts_each_file_once_and_follows_no_link(tmp_path: Path) -> None:
    store, outside = tmp_path / "store", tmp_path / "outside"
    _write(outside / "big", "x" * 100_000)
    _write(store / "a", "x" * 10_000)
    _write(store / "deep/er/b", "x" * 5)
    os.link(store / "a", store / "deep/again")
    (store / "link").symlink_to(outside)
    with (store / "sparse").open("wb") as file:
        file.truncate(1_000_000)
    size = measure(store)
    assert size is not None
    link_bytes = len(os.fspath(outside))
    assert size.apparent_bytes == 10_000 + 5 + 1_000_000 + link_bytes
    assert size.files == 4
    assert 0 < size.allocated_bytes < 500_000


def test_footprint_of_one_file_an_empty_folder_and_nothing(tmp_path: Path) -> None:
    _write(tmp_path / "f", "abc")
    one = measure(tmp_path / "f")
    assert one is not None and (one.apparent_bytes, one.files) == (3, 1)
    (tmp_path / "empty").mkdir()
    empty = measure(tmp_path / "empty")
    assert empty is not None and (empty.apparent_bytes, empty.files) == (0, 0)
    assert isinstance(empty, FolderSize)
    assert measure(tmp_path / "none") is None


def test_probe_answers_every_question_with_words() -> None:
    rows = probe.measurable()
    assert len({row.what for row in rows}) == len(rows) >= 9
    assert all(row.how for row in rows)
    known = {row.what: row for row in rows}
    assert known["CPU time"].available
    assert known["energy, modelled"].available
    rapl = known["energy of the CPU package (RAPL)"]
    meters = probe.energy_meters()
    assert rapl.available == any(meter.scope == "package" for meter in meters)
    assert known["energy of the GPU (NVML)"].available == any(m.scope == "device" for m in meters)
    for meter in meters:
        meter.close()
