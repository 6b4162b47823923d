"""Sentence embeddings by a BERT encoder: pooled over tokens, unit length."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from agentmem.engine.cputime import usable_cores
from agentmem.engine.models.bert import Bert, load_bert
from agentmem.errors import DataError
from agentmem.modelfiles.fetch import model_name, verify
from agentmem.modelfiles.tokenizer import Tokenizer, load_tokenizer

_BATCH_TOKENS = 4096
"""Padded tokens of one forward pass: enough to keep cores busy, little enough for caches."""


class Embedder:
    """One loaded encoder. Thread-safe: calls are serialised."""

    backend = "torch"
    mode = "fp32"

    def __init__(
        self, model: Bert, tokenizer: Tokenizer, *, name: str, window: int, weights: str, mean: bool
    ) -> None:
        self.name = name
        self.window = window
        self.weights = weights
        self.tokenizer = tokenizer
        self.dims = model.width
        self.threads = torch.get_num_threads()
        self._model = model
        self._mean = mean
        self._lock = threading.Lock()

    @classmethod
    def load(cls, path: Path | str, threads: int | None = None) -> Embedder:
        """Read a sentence-transformers folder (config.json, tokenizer.json, model.safetensors)."""
        path = Path(path)
        torch.set_num_threads(threads or usable_cores())
        weights = verify(path)
        model = load_bert(path)
        window = int(_json(path / "sentence_bert_config.json").get("max_seq_length", model.window))
        return cls(
            model,
            load_tokenizer(path),
            name=model_name(path),
            window=min(window, model.window),
            weights=weights,
            mean=_pools_by_mean(path),
        )

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        """Unit vectors float32 [len(texts), dims]; longer texts are cut to `window` tokens."""
        ids = [self._ids(text) for text in texts]
        out = np.empty((len(texts), self.dims), dtype=np.float32)
        with self._lock, torch.inference_mode():
            # the number of threads is a property of the calling thread, too
            torch.set_num_threads(self.threads)
            for batch in _batches([len(i) for i in ids]):
                out[batch] = self._forward([ids[i] for i in batch])
        return out

    def count(self, texts: list[str]) -> list[int]:
        """Tokens each text costs: markers included, after truncation to the window."""
        return [len(self._ids(text)) for text in texts]

    def close(self) -> None:
        """Nothing is held but memory."""

    def _ids(self, text: str) -> list[int]:
        ids = self.tokenizer.encode(text)
        if len(ids) <= self.window:
            return ids
        # the closing marker stays
        return [*ids[: self.window - 1], ids[-1]]

    def _forward(self, ids: list[list[int]]) -> NDArray[np.float32]:
        longest = max(len(i) for i in ids)
        tokens = torch.zeros(len(ids), longest, dtype=torch.long)
        mask = torch.zeros(len(ids), longest, dtype=torch.bool)
        for row, sequence in enumerate(ids):
            tokens[row, : len(sequence)] = torch.tensor(sequence)
            mask[row, : len(sequence)] = True
        hidden = self._model.forward(tokens, mask)
        if self._mean:
            weight = mask[..., None].float()
            pooled = (hidden * weight).sum(1) / weight.sum(1)
        else:
            pooled = hidden[:, 0]
        unit: NDArray[np.float32] = torch.nn.functional.normalize(pooled, dim=-1).numpy()
        return unit


def _batches(lengths: list[int]) -> Iterator[list[int]]:
    """Indices of texts of similar length, so that little is spent on padding."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    batch: list[int] = []
    for index in order:
        if batch and (len(batch) + 1) * lengths[index] > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _pools_by_mean(folder: Path) -> bool:
    raw = _json(folder / "1_Pooling" / "config.json")
    chosen = [key for key, on in raw.items() if key.startswith("pooling_mode") and on]
    if chosen in ([], ["pooling_mode_mean_tokens"]):
        return True
    if chosen == ["pooling_mode_cls_token"]:
        return False
    raise DataError(f"{folder} pools by {chosen}, which is not supported")


def _json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{file} is no readable JSON: {error}") from error
    return value if isinstance(value, dict) else {}
