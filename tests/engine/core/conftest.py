"""Tiny random models saved by transformers, and engines on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from agentmem.engine.core import EngineCore
from agentmem.modelfiles.fetch import is_fetched, resolve
from tests.engine.core.toys import TOYS, save_toy
from tests.modelfiles.naive import byte_signs


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tiny matrices gain nothing from a second thread, and wait for it on a busy machine."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def fetched() -> Callable[[str], Path]:
    """Path of a fetched model; skips the test where it is not there."""

    def find(name: str) -> Path:
        if not is_fetched(name):
            pytest.skip(f"needs `agentmem models pull {name}`")
        return resolve(name)

    return find


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folder of a tiny random model by its name in TOYS, with a byte tokenizer."""
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            save_toy(TOYS[name], folder)
            _save_tokenizer(folder)
            made[name] = folder
        return made[name]

    return make


def _save_tokenizer(folder: Path) -> None:
    backend = Backend(models.BPE(vocab={s: i for i, s in enumerate(byte_signs())}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<s>", "<|im_start|>", "<|im_end|>"])
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>"}))


@pytest.fixture(scope="module")
def engine(toy_folder: Callable[[str], Path]) -> Iterator[EngineCore]:
    """A running engine on the tiny llama, float32."""
    core = EngineCore.load(toy_folder("llama"), mode="fp32", threads=1)
    yield core
    core.close()
