"""Which backend a process computes with, and why."""

from __future__ import annotations

from typing import Any, Literal

from agentmem.engine.kernels import arena, native
from agentmem.engine.kernels.base import Kernels
from agentmem.engine.kernels.processor import cpu_flags
from agentmem.engine.kernels.torch_backend import kernels_for as torch_kernels
from agentmem.errors import UsageError

Backend = Literal["auto", "torch", "native"]
_TELLING = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512vbmi", "amx_bf16", "amx_int8")


def choose(backend: Backend = "auto", invariant: bool = False) -> Kernels:
    """The kernels to compute with; UsageError for `native` where there is none."""
    if backend == "torch" or (backend == "auto" and native.WHY_NOT):
        return torch_kernels(invariant)
    if native.WHY_NOT:
        raise UsageError(native.WHY_NOT)
    return native.kernels_for(invariant)


def describe() -> dict[str, Any]:
    """What `auto` gives here and what the machine offers, for people and for records."""
    there = native.WHY_NOT is None
    return {
        "backend": choose().name,
        "native": native.builds() if there else [],
        "native_version": native.VERSION if there else None,
        "why_not_native": native.WHY_NOT,
        "cpu_features": [name for name in _TELLING if name in cpu_flags()],
        "huge_pages": arena.policy(),
        "huge_bytes": arena.huge_bytes(),
    }
