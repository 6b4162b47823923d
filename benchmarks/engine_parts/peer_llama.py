"""llama.cpp as a peer process, through llama-cpp-python's C interface, on the GGUF file itself."""

from __future__ import annotations

import ctypes
import sys
import time
from typing import Any

from benchmarks.engine_parts.prompts import prompts
from benchmarks.engine_parts.wire import UnavailableError, memory, serve

SPARE = 160
"""Positions of a sequence behind its prompt."""
_BATCH = 2048


class Llama:
    """Jobs on a GGUF file. A context is kept for each shape: sequences x positions."""

    def __init__(self, options: dict[str, Any]) -> None:
        try:
            import llama_cpp
            import numpy
        except (ImportError, OSError, RuntimeError) as error:
            raise UnavailableError(f"llama_cpp cannot be imported: {error}") from error
        self._lib, self._numpy = llama_cpp, numpy
        self._quiet = llama_cpp.llama_log_callback(lambda _level, _text, _data: None)
        llama_cpp.llama_log_set(self._quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        bare = memory()["rss_mib"]
        self.threads = options["threads"]
        how = llama_cpp.llama_model_default_params()
        how.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(options["path"].encode(), how)
        if not self.model:
            raise UnavailableError(f"llama.cpp cannot load {options['path']}")
        vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(vocabulary)
        self._contexts: dict[int, tuple[Any, int]] = {}
        self._batch = llama_cpp.llama_batch_init(_BATCH, 0, 1)
        self._context: Any = None
        self.facts = {
            "mode": self._described(),
            "threads": self.threads,
            "backend": "llama.cpp",
            "version": llama_cpp.__version__,
            "bare_mib": bare,
            "vocabulary": self.vocabulary,
            "build": llama_cpp.llama_print_system_info().decode(),
        }

    def prefill(self, ids: list[list[int]]) -> dict[str, Any]:
        """One prompt after another, to their first tokens."""
        self._open(len(ids), len(ids[0]))
        began = time.perf_counter()
        self._first(ids)
        return {"s": time.perf_counter() - began}

    def decode(self, ids: list[list[int]], steps: int) -> dict[str, Any]:
        """`steps` further greedy tokens of each prompt, all sequences in one pass."""
        self._open(len(ids), len(ids[0]))
        current, at = self._first(ids), len(ids[0])
        began = time.perf_counter()
        for step in range(steps):
            self._pass([(token, at + step, s, True) for s, token in enumerate(current)])
            current = [self._best(s) for s in range(len(ids))]
        return {"s": time.perf_counter() - began, "tokens": steps * len(ids)}

    def second_turn(self, shared: list[int], new: list[int]) -> dict[str, Any]:
        """Seconds to the first token of `shared` + `new` on the state of `shared`."""
        self._open(1, len(shared) + len(new))
        self._first([shared])
        began, end = time.perf_counter(), len(new) - 1
        self._pass([(t, len(shared) + i, 0, i == end) for i, t in enumerate(new)])
        self._best(end)
        return {"s": time.perf_counter() - began, "cached": len(shared)}

    def greedy(self, ids: list[int], steps: int) -> dict[str, Any]:
        """Greedy tokens, to see that all engines run the same model."""
        self._open(1, len(ids))
        found = self._first([ids])
        for step in range(steps - 1):
            self._pass([(found[-1], len(ids) + step, 0, True)])
            found.append(self._best(0))
        return {"tokens": found}

    def warm_up(self) -> dict[str, Any]:
        """A little of everything."""
        self.decode(prompts(2, 64, seed=-1, vocabulary=self.vocabulary), 4)
        return {}

    def peak(self) -> dict[str, Any]:
        """Memory now and at most, MiB."""
        return memory()

    def _open(self, sequences: int, length: int) -> None:
        """The context for so many sequences, emptied; made anew when it is too short."""
        lib, wanted = self._lib, length + SPARE
        context, room = self._contexts.get(sequences, (None, 0))
        if room < wanted:
            if context is not None:
                lib.llama_free(context)
            how = lib.llama_context_default_params()
            how.n_ctx, how.n_seq_max = wanted * sequences, sequences
            how.n_batch, how.n_ubatch = _BATCH, 512
            how.n_threads = how.n_threads_batch = self.threads
            if hasattr(how, "kv_unified"):
                how.kv_unified = False
            context = lib.llama_init_from_model(self.model, how)
            if not context:
                raise UnavailableError(f"llama.cpp made no context for {sequences} x {wanted}")
            self._contexts[sequences] = (context, wanted)
        self._context = context
        lib.llama_memory_clear(lib.llama_get_memory(context), True)

    def _first(self, ids: list[list[int]]) -> list[int]:
        found = []
        for number, prompt in enumerate(ids):
            for start in range(0, len(prompt), _BATCH):
                piece = prompt[start : start + _BATCH]
                last = len(prompt) - 1 - start
                self._pass([(t, start + i, number, i == last) for i, t in enumerate(piece)])
            found.append(self._best(len(piece) - 1))
        return found

    def _pass(self, rows: list[tuple[int, int, int, bool]]) -> None:
        """Rows of (token, position, sequence, logits wanted)."""
        batch = self._batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i] = token, position
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
            batch.logits[i] = wanted
        code = self._lib.llama_decode(self._context, batch)
        if code:
            raise RuntimeError(f"llama_decode gave {code}")

    def _best(self, row: int) -> int:
        scores = self._lib.llama_get_logits_ith(self._context, row)
        found = self._numpy.ctypeslib.as_array(scores, shape=(self.vocabulary,))
        return int(found.argmax())

    def _described(self) -> str:
        """The file's own format, e.g. Q4_K - Medium."""
        text = ctypes.create_string_buffer(128)
        self._lib.llama_model_desc(self.model, text, 128)
        return text.value.decode().split(" ", 2)[-1]


if __name__ == "__main__":
    sys.exit(serve(Llama))
