"""Sentence embeddings by a BERT encoder: pooled over tokens, unit length."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from agentmem.engine.cputime import usable_cores
from agentmem.engine.errors import EmbeddingStoppedError
from agentmem.engine.models.bert import Bert, load_bert
from agentmem.engine.request import TrafficClass
from agentmem.engine.turns import Turns
from agentmem.errors import DataError
from agentmem.modelfiles.fetch import model_name, verify
from agentmem.modelfiles.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from agentmem.engine.core import EngineCore

BATCH_TOKENS: dict[TrafficClass, int] = {"interactive": 4096, "background": 1024}
"""Padded tokens of one forward pass: enough to keep cores busy, little enough for caches; in the
background less, since an interactive request may wait for one to end."""

INTERACTIVE: TrafficClass = "interactive"
PATIENCE_S = 5.0
"""How long a background batch gives way to interactive work: it is late, never lost."""
_LOOK_S = 0.005


class Embedder:
    """One loaded encoder. Thread-safe: batches take turns, also with what else shares `turns`."""

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
        self.turns = Turns()
        self.ahead: Callable[[], bool] = lambda: False
        """Whether interactive work elsewhere goes before a background batch."""

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

    def share(self, core: EngineCore) -> None:
        """Compute in turns with an engine, in the background only while nobody waits for it.

        Turns alone are not enough: between two steps of a request the engine does not queue for
        one, so a batch would come between any two tokens.
        """

        def ahead() -> bool:
            now, kind = core.stats(), INTERACTIVE
            return now.running[kind] + now.waiting[kind] + now.queued_tokens[kind] > 0

        self.turns, self.ahead = core.turns, ahead

    def embed(
        self, texts: list[str], *, traffic_class: TrafficClass = "interactive"
    ) -> NDArray[np.float32]:
        """Unit vectors float32 [len(texts), dims]; longer texts are cut to `window` tokens."""
        return self.compute(self.encode(texts), traffic_class=traffic_class)[0]

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Token ids of each text, markers included, not cut."""
        return [self.tokenizer.encode(text) for text in texts]

    def compute(
        self,
        ids: list[list[int]],
        *,
        traffic_class: TrafficClass = "interactive",
        stopped: Callable[[], bool] = lambda: False,
    ) -> tuple[NDArray[np.float32], float]:
        """Unit vectors float32 [len(ids), dims] in the given order, and seconds of computing.

        Each batch takes a turn of its own. EmbeddingStoppedError once `stopped` says so.
        """
        ids = [self._cut(one) for one in ids]
        out = np.empty((len(ids), self.dims), dtype=np.float32)
        seconds = 0.0
        # the number of threads is a property of the calling thread, too
        torch.set_num_threads(self.threads)
        for batch in _batches([len(one) for one in ids], BATCH_TOKENS[traffic_class]):
            if traffic_class != INTERACTIVE:
                self._give_way(stopped)
            with self.turns.turn(traffic_class):
                if stopped():
                    raise EmbeddingStoppedError
                began = time.monotonic()
                with torch.inference_mode():
                    out[batch] = self._forward([ids[i] for i in batch])
                seconds += time.monotonic() - began
        return out, seconds

    def count(self, texts: list[str]) -> list[int]:
        """Tokens each text costs: markers included, after truncation to the window."""
        return [len(self._cut(one)) for one in self.encode(texts)]

    def close(self) -> None:
        """Nothing is held but memory."""

    def _give_way(self, stopped: Callable[[], bool]) -> None:
        """Wait while interactive work is there, but not for ever."""
        until = time.monotonic() + PATIENCE_S
        while self.ahead() and not stopped() and time.monotonic() < until:
            time.sleep(_LOOK_S)

    def _cut(self, ids: list[int]) -> list[int]:
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


def _batches(lengths: list[int], most: int = BATCH_TOKENS["interactive"]) -> Iterator[list[int]]:
    """Indices of texts of similar length, so that little is spent on padding."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    batch: list[int] = []
    for index in order:
        if batch and (len(batch) + 1) * lengths[index] > most:
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
