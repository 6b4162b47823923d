"""What the machine gives at this moment: bandwidth of reading, speed of a bf16 matrix product."""

from __future__ import annotations

import mmap
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.engine_parts.wire import serve

BYTES = 256 << 20
_HUGE = 2 << 20


class Probe:
    """Reads a buffer of huge pages in several ways and keeps the best; then a product."""

    def __init__(self, options: dict[str, Any]) -> None:
        import torch

        torch.set_num_threads(options["threads"])
        self._torch = torch
        self._memory = mmap.mmap(-1, BYTES + _HUGE)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        data = torch.frombuffer(self._memory, dtype=torch.uint8)[:BYTES].fill_(1)
        self._whole = data.view(torch.int64)
        self._plain, self._half = data.view(torch.float32), data.view(torch.bfloat16)
        self._vector = torch.ones(4096)
        self._left = torch.ones(512, 2048, dtype=torch.bfloat16)
        self._right = torch.ones(2048, 2048, dtype=torch.bfloat16)
        self.facts = {"threads": torch.get_num_threads(), "torch": torch.__version__}

    def probe(self, seconds: float = 0.5) -> dict[str, Any]:
        """Best GB/s of any way of reading, and best GFLOP/s at 512 rows, half the time each."""
        reads: list[Callable[[], Any]] = [
            lambda: self._torch.mv(self._plain.view(-1, 4096), self._vector),
            lambda: self._torch.mv(self._half.view(-1, 4096), self._vector.bfloat16()),
            self._whole.sum,
        ]
        product = 2 * 512 * 2048 * 2048
        return {
            "bandwidth_gb_s": BYTES / _best(reads, seconds / 2) / 1e9,
            "matmul_gflop_s": product / _best([self._multiply], seconds / 2) / 1e9,
        }

    def _multiply(self) -> Any:
        return self._left @ self._right


def _best(ways: list[Callable[[], Any]], seconds: float) -> float:
    """The shortest of many runs, each way once at least."""
    stop, best = time.perf_counter() + seconds, float("inf")
    while True:
        for way in ways:
            began = time.perf_counter()
            way()
            best = min(best, time.perf_counter() - began)
        if time.perf_counter() >= stop:
            return best


if __name__ == "__main__":
    sys.exit(serve(Probe))
