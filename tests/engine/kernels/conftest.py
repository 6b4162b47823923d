"""Every kernel test runs on each instruction set that the module has and this processor runs."""

from collections.abc import Iterator

import pytest
import torch

from agentmem.engine.kernels import native
from agentmem.engine.kernels.native import NativeKernels


@pytest.fixture(params=["generic", "avx2", "avx512", "zen4"])
def kernels(request: pytest.FixtureRequest) -> Iterator[NativeKernels]:
    if native.WHY_NOT:
        pytest.skip(native.WHY_NOT)
    if request.param not in native.builds():
        pytest.skip(f"this processor does not run {request.param}")
    torch.manual_seed(5)
    native._native.use(request.param)
    yield NativeKernels(invariant=True)
    native._native.use(native.builds()[-1])
