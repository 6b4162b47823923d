"""The benchmark's own work, on numbers that the interpreter can manage; nothing is timed there."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from agentmem.engine.gpu.backend import TritonKernels
from benchmarks import gpu_kernels as bench
from tests.engine.gpu.device.support import DEVICE

pytestmark = pytest.mark.slow


def once(work: Callable[[], object]) -> float:
    work()
    return 1.0


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "DEVICE", DEVICE)
    monkeypatch.setattr(bench, "WIDTH", 256)
    monkeypatch.setattr(bench, "REPORTED", {4: (4.0, 2.0, 3.0, 1.0)})


def test_every_row_can_be_measured(kernels: TritonKernels, monkeypatch: pytest.MonkeyPatch) -> None:
    made = bench.decoding
    monkeypatch.setattr(bench, "decoding", lambda s, c, kind: made(min(s, 2), 64, kind))
    monkeypatch.setattr(
        bench, "side_by_side", lambda p, b, c, real=bench.side_by_side: real(p, b, 64)
    )
    rows = [*bench.norm_rows(kernels, once), *bench.linear_rows(kernels, once, True)]
    rows += bench.decode_rows(kernels, once)
    assert [row.work for row in rows[:2]] == ["norm + quant", "add + norm + quant"]
    assert rows[0].reported == {"H100": 2.0, "B200": 3.0} and rows[1].reported is None
    assert len(rows) == 2 + 4 * 3 + 2 * 3
    assert len(bench.table(rows).splitlines()) == len(rows) + 1


def test_right_kernels_are_right_and_wrong_ones_are_not(kernels: TritonKernels) -> None:
    assert list(bench.wrong(kernels, True)) == []
    broken = SimpleNamespace(
        norm_quant=lambda x, w, e, s, o: kernels.norm_quant(x, w, e, s * 1.1, o),
        linear=lambda x, w: kernels.linear(x, w) + 1,
        attend=lambda q, *rest: torch.zeros_like(q).flatten(1),
    )
    assert len(list(bench.wrong(broken, True))) == 1 + 4 + 2
