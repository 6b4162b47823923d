"""A tiny random model with a byte tokenizer, for tests that need the engine itself."""

from __future__ import annotations

from pathlib import Path

from tests.engine.core.conftest import _save_tokenizer
from tests.engine.core.toys import TOYS, save_toy


def toy(folder: Path, name: str = "llama") -> Path:
    """The folder, holding the model."""
    save_toy(TOYS[name], folder)
    _save_tokenizer(folder)
    return folder
