"""transformers as a peer process: bf16, scaled dot-product attention, its own cache."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from benchmarks.engine_parts.prompts import prompts
from benchmarks.engine_parts.wire import UnavailableError, memory, serve


class Transformers:
    """Jobs on a safetensors folder."""

    def __init__(self, options: dict[str, Any]) -> None:
        os.environ["HF_HUB_OFFLINE"] = "1"
        import torch

        torch.set_num_threads(options["threads"])
        torch.mm(torch.ones(256, 256), torch.ones(256, 256))
        try:
            import transformers
            from transformers import AutoModelForCausalLM
        except ImportError as error:
            raise UnavailableError(f"transformers cannot be imported: {error}") from error
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        bare = memory()["rss_mib"]
        self._torch = torch
        self.model = AutoModelForCausalLM.from_pretrained(
            options["path"], dtype=torch.bfloat16, attn_implementation="sdpa"
        ).eval()
        self.vocabulary = self.model.config.vocab_size
        self.facts = {
            "mode": "bf16",
            "threads": torch.get_num_threads(),
            "backend": f"torch {torch.__version__}",
            "version": transformers.__version__,
            "bare_mib": bare,
            "vocabulary": self.vocabulary,
        }

    def prefill(self, ids: list[list[int]]) -> dict[str, Any]:
        """All prompts in one pass, to their first token."""
        began = time.perf_counter()
        self._first(ids)
        return {"s": time.perf_counter() - began}

    def decode(self, ids: list[list[int]], steps: int) -> dict[str, Any]:
        """`steps` further greedy tokens of each prompt."""
        cache, current = self._first(ids)
        began = time.perf_counter()
        with self._torch.inference_mode():
            for _ in range(steps):
                out = self.model(current, past_key_values=cache, use_cache=True)
                current = out.logits[:, -1:].argmax(-1)
        return {"s": time.perf_counter() - began, "tokens": steps * len(ids)}

    def second_turn(self, shared: list[int], new: list[int]) -> dict[str, Any]:
        """Seconds to the first token of `shared` + `new` on the cache of `shared`."""
        cache, _ = self._first([shared])
        began = time.perf_counter()
        self._first([new], cache)
        return {"s": time.perf_counter() - began, "cached": len(shared)}

    def greedy(self, ids: list[int], steps: int) -> dict[str, Any]:
        """Greedy tokens, to see that all engines run the same model."""
        cache, current = self._first([ids])
        found = [int(current)]
        with self._torch.inference_mode():
            for _ in range(steps - 1):
                out = self.model(current, past_key_values=cache, use_cache=True)
                current = out.logits[:, -1:].argmax(-1)
                found.append(int(current))
        return {"tokens": found}

    def warm_up(self) -> dict[str, Any]:
        """A little of everything."""
        self.decode(prompts(2, 64, seed=-1, vocabulary=self.vocabulary), 4)
        return {}

    def peak(self) -> dict[str, Any]:
        """Memory now and at most, MiB."""
        return memory()

    def _first(self, ids: list[list[int]], cache: Any = None) -> tuple[Any, Any]:
        with self._torch.inference_mode():
            rows = self._torch.tensor(ids)
            out = self.model(rows, past_key_values=cache, use_cache=True, logits_to_keep=1)
            return out.past_key_values, out.logits[:, -1:].argmax(-1)


if __name__ == "__main__":
    sys.exit(serve(Transformers))
