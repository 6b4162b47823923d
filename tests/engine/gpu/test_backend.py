"""The backend where it cannot run: importable, and clear about why."""

from __future__ import annotations

import pytest
import torch

from agentmem.engine.gpu import devices
from agentmem.engine.gpu.backend import TritonKernels
from agentmem.errors import EngineError


def test_without_triton_it_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "find_spec", lambda name: None)
    with pytest.raises(EngineError, match=r"needs triton: pip install 'agentmem-profiler\[gpu\]'"):
        TritonKernels()


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "find_spec", lambda name: object())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(EngineError, match="torch sees none"):
        TritonKernels()
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert devices.unavailable() is None


def test_e4m3_starts_at_sm_89() -> None:
    assert devices.no_e4m3((8, 0)) == (
        "sm_80 has no e4m3: fp8 needs sm_89 or newer; use mode bf16 or int8"
    )
    assert "sm_86" in (devices.no_e4m3((8, 6)) or "")
    for capability in ((8, 9), (9, 0), (10, 0), (12, 0)):
        assert devices.no_e4m3(capability) is None


def test_an_old_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    with pytest.raises(EngineError, match="sm_80 has no e4m3"):
        devices.require_e4m3(torch.device("cuda"))
    devices.require_e4m3(torch.device("cpu"))
    assert not devices.converts_e4m3(torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 9))
    devices.require_e4m3(torch.device("cuda"))
    assert not devices.converts_e4m3(torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert devices.converts_e4m3(torch.device("cuda"))
