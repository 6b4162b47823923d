"""The Triton kernels on a GPU: right first, then time, bandwidth and the gain of fusing.

    python benchmarks/gpu_kernels.py [--json FILE]

Norms at width 4,096 in bf16 stand beside the figures reported for another implementation on H100
and B200 (SGLang #32994, FlashInfer's kernel); those are quoted, not measured. Times are medians of
CUDA graph replays, so small sizes find their data in the card's cache, fused and unfused alike.
Exit code 1 when a kernel is wrong, 3 without a GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from agentmem.engine.batch import Batch
from agentmem.engine.gpu.devices import no_e4m3, unavailable
from agentmem.engine.kernels.weights import Weight
from agentmem.engine.kv.layout import GroupSpec, KVPages
from agentmem.engine.quant.formats import dequantise, quantise

NO_GPU = 3
WIDTH = 4096
REPORTED = {
    # tokens: H100 unfused, fused; B200 unfused, fused; milliseconds
    512: (0.007168, 0.003779, 0.004240, 0.002806),
    1024: (0.011040, 0.008006, 0.006502, 0.003814),
    2048: (0.022272, 0.013434, 0.010176, 0.006694),
    4096: (0.045466, 0.027411, 0.019589, 0.011798),
    8192: (0.110162, 0.049283, 0.042762, 0.023654),
    16384: (0.217082, 0.094088, 0.079254, 0.039635),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement. `other` is what `ours` is compared with; None is unknown."""

    work: str
    size: str
    ours_ms: float
    other_ms: float
    other: str
    bytes_moved: int
    """What `ours` must read and write at least once."""
    reported: dict[str, float] | None = None
    """Gain of fusing by card, as reported elsewhere."""

    @property
    def ratio(self) -> float:
        """Other over ours: above 1 is faster."""
        return self.other_ms / self.ours_ms

    @property
    def gb_per_s(self) -> float:
        """Bandwidth that ours reached."""
        return self.bytes_moved / self.ours_ms / 1e6


def reported(tokens: int) -> dict[str, float] | None:
    """Gain of fusing by card at width 4,096, as reported elsewhere."""
    if tokens not in REPORTED:
        return None
    h_unfused, h_fused, b_unfused, b_fused = REPORTED[tokens]
    return {"H100": round(h_unfused / h_fused, 2), "B200": round(b_unfused / b_fused, 2)}


def table(rows: Sequence[Row]) -> str:
    """For a screen: one line a row, reported gains behind."""
    lines = [
        f"{'work':34} {'size':>16} {'ours ms':>9} {'other ms':>9} {'x':>6} {'GB/s':>6}"
        f" {'H100 x':>7} {'B200 x':>7}  other"
    ]
    for row in rows:
        quoted = row.reported or {}
        cells = [f"{quoted[card]:7.2f}" if card in quoted else f"{'-':>7}" for card in CARDS]
        lines.append(
            f"{row.work:34} {row.size:>16} {row.ours_ms:9.5f} {row.other_ms:9.5f} {row.ratio:6.2f}"
            f" {row.gb_per_s:6.0f} {' '.join(cells)}  {row.other}"
        )
    return "\n".join(lines)


def document(card: dict[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """What --json writes."""
    shown = [asdict(row) | {"ratio": row.ratio, "gb_per_s": row.gb_per_s} for row in rows]
    return {"format": 1, "card": card, "rows": shown}


def norm_bytes(tokens: int, width: int, added: bool) -> int:
    """bf16 in (with a delta: two in, one back), one byte a value out."""
    return tokens * width * ((6 if added else 2) + 1) + 2 * width


CARDS = ("H100", "B200")
DEVICE = "cuda"
Timer = Callable[[Callable[[], object]], float]


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE).to(dtype)


def norm_rows(kernels: Any, time: Timer) -> Iterator[Row]:
    """Fused norm and quantisation beside our own two kernels, and beside eager torch."""
    from agentmem.engine.gpu import norms

    weight = (normal(WIDTH).float() * 0.1 + 1).bfloat16()
    scale = torch.tensor([0.05], device=DEVICE)
    for added in (False, True):
        name = "add + norm + quant" if added else "norm + quant"
        for tokens in REPORTED:
            x, delta = normal(tokens, WIDTH), normal(tokens, WIDTH) * 1e-3
            extra = delta if added else None

            def fused(x=x, extra=extra) -> object:  # type: ignore[no-untyped-def]
                return kernels.norm_quant(x, weight, 1e-6, scale, "round-first", extra)

            def unfused(x=x, extra=extra) -> object:  # type: ignore[no-untyped-def]
                return norms.quant(norms.norm(x, extra, weight, 1e-6, torch.bfloat16), scale)

            moved = norm_bytes(tokens, WIDTH, added)
            quoted = None if added else reported(tokens)
            size = f"{tokens} x {WIDTH}"
            yield Row(name, size, time(fused), time(unfused), "two kernels", moved, quoted)


def linear_rows(kernels: Any, time: Timer, e4m3: bool) -> Iterator[Row]:
    """Few rows times matrices of eight and sixteen bits, beside torch's bf16 product."""
    formats = ("bf16", "int8", "fp8", "int4") if e4m3 else ("bf16", "int8", "int4")
    dense = (torch.randn(WIDTH, WIDTH) / WIDTH**0.5).bfloat16()
    plain = dense.to(DEVICE)
    for format in formats:
        weight = on_card(quantise(dense, format))  # type: ignore[arg-type]
        for tokens in (1, 4, 16):
            x = normal(tokens, WIDTH)
            ours = time(lambda x=x, w=weight: kernels.linear(x, w))  # type: ignore[misc]
            other = time(lambda x=x: F.linear(x, plain))  # type: ignore[misc]
            size = f"{tokens} x {WIDTH} x {WIDTH}"
            moved = weight.size_bytes + 4 * tokens * WIDTH
            yield Row(f"linear {format}", size, ours, other, "torch bf16", moved)


def decode_rows(kernels: Any, time: Timer) -> Iterator[Row]:
    """One row a sequence over its context, beside torch's attention on keys laid side by side."""
    for kind in ("bf16", "int8"):
        for sequences, context in ((1, 4096), (8, 4096), (64, 1024)):
            q, pages, batch = decoding(sequences, context, kind)
            ours = time(lambda q=q, p=pages, b=batch: kernels.attend(q, p, 0, b, 0, SCALE, None))  # type: ignore[misc]
            keys, values = side_by_side(pages, batch, context)
            query = q[:, :, None]
            other = time(
                lambda q=query, k=keys, v=values: F.scaled_dot_product_attention(  # type: ignore[misc]
                    q, k, v, scale=SCALE, enable_gqa=True
                )
            )
            moved = 2 * sequences * context * KV_HEADS * (DIM * pages.data.element_size())
            name = f"decode attention, {kind} pages"
            yield Row(name, f"{sequences} x {context}", ours, other, "torch, dense bf16", moved)


HEADS, KV_HEADS, DIM, BLOCK = 32, 8, 128, 16
SCALE = DIM**-0.5


def decoding(sequences: int, context: int, kind: str) -> tuple[torch.Tensor, KVPages, Batch]:
    """Sequences of one new row each, blocks strewn over the pool."""
    per = context // BLOCK
    spec = GroupSpec((0,), KV_HEADS, DIM)
    made = KVPages.empty(spec, sequences * per + 1, BLOCK, kind)  # type: ignore[arg-type]
    data, scales = made.data.to(DEVICE), None
    if made.scales is None:
        data.normal_()
    else:
        data.random_(-127, 128)
        scales = torch.full(made.scales.shape, 0.01, device=DEVICE)
    table = (torch.randperm(sequences * per, device=DEVICE) + 1).int().view(sequences, per)
    starts = torch.arange(sequences + 1, device=DEVICE, dtype=torch.int32)
    rows = torch.zeros(sequences, device=DEVICE, dtype=torch.int64)
    contexts = torch.full((sequences,), context, device=DEVICE, dtype=torch.int32)
    batch = Batch(rows, rows + context - 1, starts, contexts, (table,), (rows,), rows)
    return normal(sequences, HEADS, DIM), KVPages(data, scales, made.kind), batch


def side_by_side(pages: KVPages, batch: Batch, context: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values bf16 [sequences, kv_heads, context, dim]."""
    data = pages.data[0].bfloat16()
    if pages.scales is not None:
        data = data * pages.scales[0, ..., None].bfloat16()
    found = data[:, batch.tables[0].long()].transpose(2, 3)
    keys, values = found.flatten(3, 4)[:, :, :, :context].unbind(0)
    return keys.contiguous(), values.contiguous()


def on_card(weight: Weight) -> Weight:
    scale = None if weight.scale is None else weight.scale.to(DEVICE)
    offset = None if weight.offset is None else weight.offset.to(DEVICE)
    return Weight(weight.format, weight.data.to(DEVICE), scale, weight.group, offset=offset)


def wrong(kernels: Any, e4m3: bool) -> Iterator[str]:
    """One line for each kernel whose result is not what torch makes of the same numbers."""
    from agentmem.engine.gpu import norms

    if e4m3:
        x, weight = normal(64, WIDTH), normal(WIDTH)
        scale = torch.tensor([0.05], device=DEVICE)
        fused = kernels.norm_quant(x, weight, 1e-6, scale, "round-first").data.view(torch.uint8)
        plain = norms.norm(x, None, weight, 1e-6, torch.bfloat16)
        codes = (plain.float() * (1 / scale)).clamp(-448, 448).to(torch.float8_e4m3fn)
        if not torch.equal(fused, codes.view(torch.uint8)):
            yield "norm + quant: other codes than norm, then torch's conversion"
    for format in ("bf16", "int8", "int4", *(("fp8",) if e4m3 else ())):
        made = quantise(torch.randn(512, WIDTH) / WIDTH**0.5, format)  # type: ignore[arg-type]
        x = normal(5, WIDTH)
        wanted = x.double() @ dequantise(made).to(DEVICE).double().T
        if not torch.allclose(kernels.linear(x, on_card(made)).double(), wanted, 1e-2, 1e-2):
            yield f"linear {format}: further from float64 than bf16 allows"
    for kind in ("bf16", "int8"):
        q, pages, batch = decoding(3, 1024, kind)
        keys, values = side_by_side(pages, batch, 1024)
        wanted = F.scaled_dot_product_attention(
            q[:, :, None].float(), keys.float(), values.float(), scale=SCALE, enable_gqa=True
        )
        got = kernels.attend(q, pages, 0, batch, 0, SCALE, None)
        if not torch.allclose(got.float(), wanted.flatten(1), 2e-2, 2e-2):
            yield f"decode attention, {kind} pages: further from torch's than bf16 allows"


def card_of(time: Timer) -> dict[str, Any]:
    """Name, capability and the bandwidth of a plain copy."""
    data = torch.empty(1 << 30, dtype=torch.uint8, device=DEVICE)
    other = torch.empty_like(data)
    copied = 2 * data.numel() / time(lambda: other.copy_(data)) / 1e6
    major, minor = torch.cuda.get_device_capability()
    name = torch.cuda.get_device_name()
    return {"name": name, "capability": f"sm_{major}{minor}", "copy_gb_per_s": round(copied)}


def measure(path: Path | None) -> int:
    from triton.testing import do_bench_cudagraph

    from agentmem.engine.gpu.backend import TritonKernels

    def time(work: Callable[[], object]) -> float:
        return float(do_bench_cudagraph(work, rep=50, return_mode="median"))

    torch.manual_seed(0)
    kernels = TritonKernels()
    reason = no_e4m3(torch.cuda.get_device_capability())
    mistakes = list(wrong(kernels, reason is None))
    if mistakes:
        print("\n".join(f"wrong: {line}" for line in mistakes), file=sys.stderr)
        return 1
    card = card_of(time)
    print(f"{card['name']} ({card['capability']}), copies {card['copy_gb_per_s']} GB/s")
    if reason is not None:
        print(f"without fp8: {reason}")
    rows = [] if reason else list(norm_rows(kernels, time))
    rows += [*linear_rows(kernels, time, reason is None), *decode_rows(kernels, time)]
    assert all(math.isfinite(row.ratio) for row in rows)
    print(table(rows))
    if path is not None:
        path.write_text(json.dumps(document(card, rows), indent=1) + "\n", encoding="utf-8")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="time the GPU kernels, after checking them")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there, too")
    options = parser.parse_args(argv)
    reason = unavailable()
    if reason is None and not torch.cuda.is_available():
        reason = "nothing to measure: torch sees no GPU"  # the interpreter is no GPU
    if reason is not None:
        print(f"gpu_kernels: {reason}", file=sys.stderr)
        return NO_GPU
    return measure(options.json)


if __name__ == "__main__":
    sys.exit(main())
