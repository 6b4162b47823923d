"""Which devices can do what, and why not."""

from __future__ import annotations

import os
from importlib.util import find_spec

import torch

from agentmem.errors import EngineError

INSTALL = "pip install 'agentmem-profiler[gpu]'"
E4M3_FROM = (8, 9)
"""Compute capability from which CUDA devices convert and multiply e4m3."""
CONVERTS_FROM = (9, 0)
"""From which the compiler turns float32 into e4m3 at once, not by way of float16."""


def interpreting() -> bool:
    """True when kernels run in Triton's interpreter, on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes")


def unavailable() -> str | None:
    """Why the Triton backend cannot be used here, in one line, or None where it can."""
    if find_spec("triton") is None:
        return f"the triton backend needs triton: {INSTALL}"
    if not torch.cuda.is_available() and not interpreting():
        return "the triton backend needs a GPU, and torch sees none"
    return None


def no_e4m3(capability: tuple[int, int]) -> str | None:
    """Why a CUDA device cannot run fp8 kernels, or None where it can."""
    if capability >= E4M3_FROM:
        return None
    major, minor = capability
    return f"sm_{major}{minor} has no e4m3: fp8 needs sm_89 or newer; use mode bf16 or int8"


def require_e4m3(device: torch.device) -> None:
    """Raises EngineError on a device without e4m3. The interpreter has it."""
    if device.type != "cuda" or torch.version.hip is not None:
        return
    reason = no_e4m3(torch.cuda.get_device_capability(device))
    if reason is not None:
        raise EngineError(reason)


def converts_e4m3(device: torch.device) -> bool:
    """Whether the compiler's own conversion from float32 is exact on a device."""
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    return torch.cuda.get_device_capability(device) >= CONVERTS_FROM
