"""Energy: a fake powercap tree, a fake NVML, the model's band, and origins that never mix."""

# ruff: noqa: N802 - the fake has NVML's own names

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmem.errors import AccountingError, UsageError
from agentmem.meters import nvml, rapl
from agentmem.meters.base import Energy, EnergyMeter, NoEnergy
from agentmem.meters.energy import Band, ModelledEnergy, choose, describe, idle_power
from agentmem.meters.nvml import NvmlEnergy
from agentmem.meters.rapl import RaplEnergy

RANGE_UJ = 262_143_328_850


def _domain(root: Path, folder: str, name: str, energy_uj: int) -> Path:
    path = root / folder
    path.mkdir(parents=True)
    (path / "name").write_text(name + "\n")
    (path / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
    (path / "energy_uj").write_text(f"{energy_uj}\n")
    return path / "energy_uj"


@pytest.fixture
def two_packages(tmp_path: Path) -> list[Path]:
    """Two packages, with everything beside them that must not be added."""
    packages = [
        _domain(tmp_path, "intel-rapl:0", "package-0", RANGE_UJ - 1_000_000),
        _domain(tmp_path, "intel-rapl:1", "package-1", 5_000_000),
    ]
    for folder, name in [
        ("intel-rapl:0:0", "core"), ("intel-rapl:0:1", "dram"), ("intel-rapl:2", "psys"),
        ("intel-rapl-mmio:0", "package-0"), ("dtpm", "x"),
    ]:  # fmt: skip
        packages.append(_domain(tmp_path, folder, name, 0))
    return packages


def test_packages_are_summed_over_a_wrap_around(tmp_path: Path, two_packages: list[Path]) -> None:
    meter = RaplEnergy(tmp_path)
    assert meter.read() == 0.0
    for other in two_packages[2:]:
        other.write_text("999000000")
    two_packages[1].write_text(str(5_000_000 + 2_000_000))
    assert meter.read() == pytest.approx(2.0)
    two_packages[0].write_text("500000")
    assert meter.read() == pytest.approx(2.0 + 1.5)
    two_packages[0].write_text("700000")
    meter.tick()
    two_packages[0].write_text("100")
    assert meter.read() == pytest.approx(3.7 + (RANGE_UJ - 700_000 + 100) / 1e6)


@settings(deadline=None)
@given(steps=st.lists(st.integers(0, RANGE_UJ - 1), min_size=1, max_size=12))
def test_any_counter_path_is_unrolled(
    steps: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    counter = _domain(tmp_path_factory.mktemp("rapl"), "intel-rapl:0", "package-0", 17)
    meter = RaplEnergy(counter.parent.parent)
    position = 17
    for step in steps:
        position = (position + step) % RANGE_UJ
        counter.write_text(str(position))
        meter.tick()
    assert meter.read() == pytest.approx(sum(steps) / 1e6)


def test_package_that_stops_answering_makes_the_figure_unknown(
    tmp_path: Path, two_packages: list[Path]
) -> None:
    meter = RaplEnergy(tmp_path)
    two_packages[1].unlink()
    assert meter.read() is None


def test_machine_without_rapl_says_why(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no CPU package"):
        RaplEnergy(tmp_path)
    assert "lists no CPU package" in (rapl.why_not(tmp_path) or "")
    assert "does not exist" in (rapl.why_not(tmp_path / "none") or "")
    counter = _domain(tmp_path, "intel-rapl:0", "package-0", 1)
    assert rapl.why_not(tmp_path) is None
    counter.unlink()
    counter.mkdir()
    assert "intel-rapl:0/energy_uj" in (rapl.why_not(tmp_path) or "")


class FakeNvml:
    """Two devices with settable power and, when `counters`, an energy counter each."""

    class NVMLError(Exception):
        pass

    def __init__(self, counters: bool, devices: int = 2) -> None:
        self.counters, self.devices, self.dead = counters, devices, False
        self.energy_mj = [1_000_000, 2_000_000]
        self.power_mw = [100_000, 50_000]
        self.closed = False

    def _check(self) -> None:
        if self.dead:
            raise self.NVMLError("GPU is lost")

    def nvmlDeviceGetCount(self) -> int:
        return self.devices

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index >= self.devices:
            raise self.NVMLError("Invalid Argument")
        return index

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        self._check()
        if not self.counters:
            raise self.NVMLError("Not Supported")
        return self.energy_mj[handle]

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        self._check()
        return self.power_mw[handle]

    def nvmlShutdown(self) -> None:
        self.closed = True


def test_device_counters_are_read_where_there_are_some() -> None:
    fake = FakeNvml(counters=True)
    meter = NvmlEnergy(fake)
    assert (meter.source, meter.scope, meter.devices) == ("counter", "device", 2)
    fake.energy_mj = [1_000_500, 2_001_000]
    assert meter.read() == pytest.approx(1.5)
    one = NvmlEnergy(fake, devices=[1])
    fake.energy_mj = [1_002_000, 2_001_250]
    assert one.read() == pytest.approx(0.25)
    assert meter.read() == pytest.approx(3.25)
    meter.close()
    assert fake.closed


def test_power_is_integrated_where_there_is_no_counter() -> None:
    fake, now = FakeNvml(counters=False), [10.0]
    meter = NvmlEnergy(fake, clock=lambda: now[0])
    assert meter.source == "integrated_power"
    now[0] = 12.0
    meter.tick()
    fake.power_mw = [300_000, 50_000]
    now[0] = 13.0
    assert meter.read() == pytest.approx(2 * 150.0 + (150.0 + 350.0) / 2)


@pytest.mark.parametrize("counters", [True, False])
def test_device_that_is_lost_or_reset_makes_the_figure_unknown(counters: bool) -> None:
    fake = FakeNvml(counters)
    meter = NvmlEnergy(fake)
    fake.dead = True
    assert meter.read() is None
    fake.dead = False
    assert meter.read() is None


def test_device_that_tells_neither_energy_nor_power_is_no_meter() -> None:
    fake = FakeNvml(counters=False)
    fake.dead = True
    with pytest.raises(UsageError, match="neither energy nor power"):
        NvmlEnergy(fake)


def test_counter_that_was_reset_is_unknown() -> None:
    fake = FakeNvml(counters=True)
    meter = NvmlEnergy(fake)
    fake.energy_mj = [0, 2_500_000]
    assert meter.read() is None


def test_missing_devices_and_bindings_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no device"):
        NvmlEnergy(FakeNvml(True, devices=0))
    with pytest.raises(UsageError, match="Invalid Argument"):
        NvmlEnergy(FakeNvml(True), devices=[7])

    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", absent)
    with pytest.raises(UsageError, match="pip install"):
        nvml.load()


def test_binding_without_a_driver_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise FakeNvml.NVMLError("Driver Not Loaded")

    module = SimpleNamespace(NVMLError=FakeNvml.NVMLError, nvmlInit=refuse)
    monkeypatch.setattr("importlib.import_module", lambda _: module)
    with pytest.raises(UsageError, match="Driver Not Loaded"):
        nvml.load()


def test_model_gives_a_band_and_claims_no_reading() -> None:
    model = ModelledEnergy()
    assert model.read() is None
    assert (model.source, model.scope) == ("model", "process")
    assert model.joules(2.5) == Band(5.0, 10.0, 20.0)
    assert model.joules(None) is None
    assert ModelledEnergy(Band(1, 2, 3)).joules(2.0) == Band(2, 4, 6)


def test_one_origin_adds_and_two_refuse() -> None:
    package = Energy(3.0, "counter", "package")
    assert package + Energy(4.0, "counter", "package") == Energy(7.0, "counter", "package")
    assert (package + Energy(None, "counter", "package")).energy_j is None
    for other in [Energy(1.0, "model", "process"), Energy(1.0, "counter", "device")]:
        with pytest.raises(AccountingError, match="cannot be added"):
            package + other


def test_choice_follows_where_the_engine_runs(tmp_path: Path, two_packages: list[Path]) -> None:
    device, package = NvmlEnergy(FakeNvml(True)), RaplEnergy(tmp_path)
    both: list[EnergyMeter] = [package, device]
    assert choose(both, engine_on_gpu=True) is device
    assert choose(both, engine_on_gpu=False) is package
    assert choose([device], engine_on_gpu=False).source == "model"
    assert choose([], engine_on_gpu=True).source == "model"
    assert describe(package)["source"] == "counter"
    assert describe(NoEnergy())["scope"] is None


def test_idle_power_is_measured_over_its_own_time() -> None:
    now = [0.0]
    fake = FakeNvml(counters=False)
    meter = NvmlEnergy(fake, clock=lambda: now[0])

    def sleep(seconds: float) -> None:
        now[0] += seconds

    idle = idle_power(meter, 2.0, sleep=sleep, clock=lambda: now[0])
    assert idle.seconds == pytest.approx(2.0)
    assert idle.energy_j == pytest.approx(300.0)
    assert idle.watts == pytest.approx(150.0)
    nothing = idle_power(ModelledEnergy(), 0.5, sleep=sleep, clock=lambda: now[0])
    assert (nothing.energy_j, nothing.watts, nothing.source) == (None, None, "model")
