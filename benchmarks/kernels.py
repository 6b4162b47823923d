"""Native kernels against torch, operation by operation, at the shapes of three small models.

    python benchmarks/kernels.py [--json FILE] [--models gemma3-270m,...] [--rounds 5] [--seconds S]

Rounds are interleaved: torch, native, torch, native ...; a ratio is torch's time by native's of
the same round, higher is better, and the table shows medians with the spread. Beside each round a
probe reads memory and multiplies matrices, so that a busy machine shows. Weights lie in huge pages
for both, where the system gives them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from agentmem.engine.batch import Batch
from agentmem.engine.kernels.arena import settle
from agentmem.engine.kernels.choose import describe
from agentmem.engine.kernels.native import NativeKernels
from agentmem.engine.kernels.torch_backend import TorchKernels
from agentmem.engine.kernels.weights import Weight
from agentmem.engine.kv.layout import GroupSpec, KVPages
from agentmem.engine.quant.formats import quantise


@dataclass(frozen=True)
class Shape:
    """What the kernels see of a model."""

    width: int
    ffn: int
    heads: int
    kv_heads: int
    dim: int
    vocab: int


MODELS = {
    "gemma3-270m": Shape(640, 2048, 4, 1, 256, 262144),
    "smollm2-135m": Shape(576, 1536, 9, 3, 64, 49152),
    "qwen2.5-coder-0.5b": Shape(896, 4864, 14, 2, 64, 151936),
}
Op = tuple[str, Callable[[], object], Callable[[], object], int]
"""Name, torch's way, ours, bytes of weights or state that it must read."""


@dataclass(frozen=True)
class Row:
    """Times in seconds, medians; ratio is torch / native, over rounds."""

    model: str
    operation: str
    torch_s: float
    native_s: float
    ratio: float
    ratio_low: float
    ratio_high: float
    native_gb_per_s: float
    probe_gb_per_s: float
    probe_gflops: float


class Probe:
    """Memory read and matrix product of this very moment."""

    def __init__(self) -> None:
        self._weight = settle(Weight("bf16", torch.ones(64 << 20, dtype=torch.bfloat16)[None]))
        self._words = self._weight.data.view(torch.int64)
        self._a = torch.randn(512, 1024).bfloat16()

    def read(self) -> tuple[float, float]:
        """GB/s and GFLOP/s of about 20 ms each."""
        started = time.perf_counter()
        self._words.sum()
        gb = self._words.nbytes / (time.perf_counter() - started) / 1e9
        started = time.perf_counter()
        for _ in range(4):
            torch.mm(self._a, self._a[:, :1024].T)
        return gb, 4 * 2 * 512 * 512 * 1024 / (time.perf_counter() - started) / 1e9


def products(shape: Shape, native: NativeKernels) -> Iterator[Op]:
    """Every matrix of a layer, and the head, by format and number of rows."""
    plain = TorchKernels()
    inner = (shape.heads + 2 * shape.kv_heads) * shape.dim
    sizes = {
        "qkv": (inner, shape.width),
        "gate_up": (2 * shape.ffn, shape.width),
        "down": (shape.width, shape.ffn),
        "head": (shape.vocab, shape.width),
    }
    for format in ("bf16", "int8", "fp8", "int4"):
        for name, (rows, columns) in sizes.items():
            weight = settle(quantise(torch.randn(rows, columns), format))
            for m in (1, 8) if name == "head" else (1, 8, 512):
                x = torch.randn(m, columns).bfloat16()
                yield (
                    f"{name} {format} x {m}",
                    lambda x=x, w=weight: plain.linear(x, w),
                    lambda x=x, w=weight: native.linear(x, w),
                    weight.size_bytes,
                )
    grouped = NativeKernels(prefill="group64")
    weight = quantise(torch.randn(2 * shape.ffn, shape.width), "int8")
    x = torch.randn(512, shape.width).bfloat16()
    yield (
        "gate_up int8 by groups x 512",
        lambda: plain.linear(x, weight),
        lambda: grouped.linear(x, weight),
        weight.size_bytes,
    )


def rows(shape: Shape, native: NativeKernels) -> Iterator[Op]:
    """What works on rows one by one."""
    plain = TorchKernels()
    weight, scale = torch.ones(shape.width, dtype=torch.bfloat16), torch.tensor([0.05])
    for m in (1, 512):
        x, delta = torch.randn(m, shape.width), torch.randn(m, shape.width).bfloat16()
        half, wide = x.bfloat16(), torch.randn(m, 2 * shape.ffn).bfloat16()
        norm, size = weight.float(), x.nbytes
        yield (
            f"add + norm x {m}",
            lambda x=x, d=delta, w=norm: plain.add_norm(x, d, w, 1e-6, torch.bfloat16),
            lambda x=x, d=delta, w=norm: native.add_norm(x, d, w, 1e-6, torch.bfloat16),
            size,
        )
        yield (
            f"add + norm + e4m3 x {m}",
            lambda x=half, d=delta: plain.norm_quant(x, weight, 1e-6, scale, "round-first", d),
            lambda x=half, d=delta: native.norm_quant(x, weight, 1e-6, scale, "round-first", d),
            size,
        )
        yield (
            f"gate x {m}",
            lambda x=wide: plain.gate(x, "silu"),
            lambda x=wide: native.gate(x, "silu"),
            wide.nbytes,
        )
    logits = torch.randn(8, shape.vocab)
    yield "argmax x 8", lambda: logits.argmax(-1), lambda: native.argmax(logits), logits.nbytes


def attention(shape: Shape, native: NativeKernels) -> Iterator[Op]:
    """Rotation and store, decode over long contexts, prefill."""
    plain = TorchKernels()
    spec = GroupSpec((0,), shape.kv_heads, shape.dim)
    for rows, context, sequences in ((1, 2048, 1), (1, 2048, 8), (512, 512, 1), (512, 2048, 1)):
        blocks = context // 16
        pages = KVPages.empty(spec, sequences * blocks + 1, 16, "bf16")
        pages.data.normal_()
        n = rows * sequences
        table = (torch.arange(sequences * blocks) + 1).view(sequences, blocks).int()
        starts = torch.arange(0, n + 1, rows, dtype=torch.int32)
        contexts = torch.full((sequences,), context, dtype=torch.int32)
        none = torch.empty(n, dtype=torch.int64)
        batch = Batch(none, none, starts, contexts, (table,), (none,), none)
        q = torch.randn(n, shape.heads, shape.dim).bfloat16()

        def way(kernels: TorchKernels, q: Tensor, p: KVPages, b: Batch) -> Callable[[], object]:
            return lambda: kernels.attend(q, p, 0, b, 0, shape.dim**-0.5, None)

        read = sequences * blocks * pages.block_bytes
        name = f"attention {sequences} x {rows} rows at {context}"
        yield name, way(plain, q, pages, batch), way(native, q, pages, batch), read
    for n in (1, 512):
        qkv = torch.randn(n, shape.heads + 2 * shape.kv_heads, shape.dim).bfloat16()
        turns = torch.randn(n, shape.dim // 2, 2)
        args = (qkv, turns, torch.arange(n), pages, 0, shape.kv_heads, None, 1e-6)
        yield (
            f"rope + store x {n}",
            lambda a=args: plain.rope_store(*a),
            lambda a=args: native.rope_store(*a),
            qkv.nbytes,
        )


def seconds(run: Callable[[], object], budget: float) -> float:
    """Of one call; the mean over calls that fill the budget, after one that does not count."""
    run()
    calls, started = 0, time.perf_counter()
    while True:
        run()
        calls += 1
        passed = time.perf_counter() - started
        if passed >= budget:
            return passed / calls


def measure(model: str, op: Op, rounds: int, budget: float, probe: Probe) -> Row:
    name, theirs, ours, size = op
    times, probes = [], []
    for _ in range(rounds):
        probes.append(probe.read())
        times.append((seconds(theirs, budget), seconds(ours, budget)))
    ratios = sorted(a / b for a, b in times)
    native_s = statistics.median(b for _, b in times)
    return Row(
        model,
        name,
        statistics.median(a for a, _ in times),
        native_s,
        statistics.median(ratios),
        ratios[0],
        ratios[-1],
        size / native_s / 1e9,
        statistics.median(gb for gb, _ in probes),
        statistics.median(flops for _, flops in probes),
    )


def show(row: Row) -> None:
    print(
        f"{row.model:20} {row.operation:32} {row.torch_s * 1e6:10.1f} {row.native_s * 1e6:10.1f} us"
        f" {row.ratio:7.2f} ({row.ratio_low:.2f}-{row.ratio_high:.2f})"
        f" {row.native_gb_per_s:6.1f} GB/s | probe {row.probe_gb_per_s:5.1f} GB/s"
        f" {row.probe_gflops:6.0f} GFLOP/s",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--only", default="", help="operations whose name holds this")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.05, help="for a side of a round")
    args = parser.parse_args()
    machine: dict[str, Any] = {**describe(), "threads": torch.get_num_threads()}
    print(machine, file=sys.stderr)
    native, probe, found = NativeKernels(), Probe(), []
    for model in args.models.split(","):
        for source in (products, rows, attention):
            for op in source(MODELS[model], native):
                if args.only in op[0]:
                    found.append(measure(model, op, args.rounds, args.seconds, probe))
                    show(found[-1])
    if args.json:
        made = {"format": 1, "machine": machine, "rows": [asdict(row) for row in found]}
        args.json.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
