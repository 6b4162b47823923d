"""One thread for tiny matrices."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tiny matrices gain nothing from a second thread, and wait for it on a busy machine."""
    torch.set_num_threads(1)
