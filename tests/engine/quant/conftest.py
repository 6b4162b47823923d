"""One thread for tiny matrices."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.engine.quant.folders import save_plain, save_tokenizer


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tiny matrices gain nothing from a second thread, and wait for it on a busy machine."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random llama with a tokenizer of bytes."""
    folder = tmp_path_factory.mktemp("model")
    save_plain(folder)
    save_tokenizer(folder)
    return folder
