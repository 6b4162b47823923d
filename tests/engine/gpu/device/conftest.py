"""Runs in a process of its own (see ../test_kernels.py): in the interpreter, or on a device.

Triton decides at import which of the two it is, so the main test process never collects these.
"""

from __future__ import annotations

import os

import pytest
import torch

from agentmem.engine.gpu.backend import TritonKernels

if not os.environ.get("AGENTMEM_KERNELS"):
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """The interpreter's arrays are tiny."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def kernels() -> TritonKernels:
    return TritonKernels()
