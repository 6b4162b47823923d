"""Sentence embeddings by a BERT encoder: mean over tokens, unit length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agentmem.modelfiles.tokenizer import Tokenizer


class Embedder:
    """One loaded encoder. Thread-safe: calls are serialised."""

    name: str
    dims: int
    window: int
    tokenizer: Tokenizer
    backend: str
    weights: str

    @classmethod
    def load(cls, path: Path | str, threads: int | None = None) -> Embedder:
        """Read a sentence-transformers folder (config.json, tokenizer.json, model.safetensors)."""
        raise NotImplementedError

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        """Unit vectors float32 [len(texts), dims]; longer texts are cut to `window` tokens."""
        raise NotImplementedError

    def count(self, texts: list[str]) -> list[int]:
        """Tokens each text costs, markers included, after truncation to the window."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is held but memory."""
