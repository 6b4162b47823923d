"""Inputs, and references in float64 that share no code with the kernels."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentmem.engine.batch import Batch
from agentmem.engine.kv.layout import GroupSpec, KVKind, KVPages

DEVICE = "cpu" if os.environ.get("AGENTMEM_KERNELS") == "interpreter" else "cuda"
E4M3 = torch.float8_e4m3fn
ROUNDING = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
"""Largest relative error of rounding to a type."""


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return made.to(dtype).to(DEVICE)


def put(values: Sequence[float], dtype: torch.dtype) -> Tensor:
    return torch.tensor(values, dtype=torch.float32).to(dtype).to(DEVICE)


def codes(data: Tensor) -> Tensor:
    return data.view(torch.uint8).cpu()


def steps_apart(a: Tensor, b: Tensor) -> Tensor:
    """How many e4m3 codes lie between; both zeros are one."""
    a, b = (torch.where(c > 127, 128 - c, c) for c in (codes(a).int(), codes(b).int()))
    return (a - b).abs()


def close(got: Tensor, wanted: Tensor, slack: float = 1e-5) -> None:
    """Equal to float64 `wanted` up to the rounding of got's type, and `slack` of the largest."""
    wanted = wanted.cpu().double()
    error = (got.cpu().double() - wanted).abs()
    bound = wanted.abs() * ROUNDING[got.dtype] * 1.01 + slack * wanted.abs().max()
    assert bool((error <= bound).all()), float((error - bound).max())


def norm64(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    x = x.cpu().double()
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight.cpu().double()


@dataclass(frozen=True)
class Shape:
    heads: int = 4
    kv_heads: int = 2
    dim: int = 16
    block: int = 4
    window: int | None = None


def batch_of(runs: Sequence[tuple[int, int]], shape: Shape) -> Batch:
    """Sequences of (rows, positions held afterwards), their blocks strewn over the pool."""
    counts = [-(-context // shape.block) for _, context in runs]
    total = sum(counts)
    free = (torch.randperm(total, generator=torch.Generator().manual_seed(7)) + 1).tolist()
    table = torch.zeros(len(runs), max(counts) + 1, dtype=torch.int32)
    positions, slots = [], []
    for i, (rows, context) in enumerate(runs):
        first = 0 if shape.window is None else max(0, context - rows - shape.window + 1)
        for b in range(first // shape.block, counts[i]):
            table[i, b] = free.pop()
        for p in range(context - rows, context):
            positions.append(p)
            slots.append(int(table[i, p // shape.block]) * shape.block + p % shape.block)
    ends = torch.tensor([0, *(rows for rows, _ in runs)]).cumsum(0)
    outputs = ends[1:] - 1
    parts = (
        torch.zeros(len(positions), dtype=torch.int64),
        torch.tensor(positions),
        ends.to(torch.int32),
        torch.tensor([context for _, context in runs], dtype=torch.int32),
        table,
        torch.tensor(slots),
        outputs,
    )
    t, p, s, c, table, at, o = (part.to(DEVICE) for part in parts)
    return Batch(t, p, s, c, (table,), (at,), o)


def pages_of(batch: Batch, shape: Shape, kind: KVKind, seed: int = 1) -> KVPages:
    """Pages with something in all blocks, and NaN in the null block, which nobody may read."""
    blocks = int(batch.tables[0].max()) + 1
    spec = GroupSpec((0, 1), shape.kv_heads, shape.dim, shape.window)
    pages = KVPages.empty(spec, blocks, shape.block, kind)
    values = random(*pages.data.shape, seed=seed).cpu()
    if kind == "int8":
        assert pages.scales is not None
        pages.data.copy_((values * 40).clamp(-127, 127).round())
        pages.scales.copy_(random(*pages.scales.shape, seed=seed + 1).cpu().abs() / 40 + 0.01)
        pages.scales[:, :, 0] = torch.nan
    else:
        pages.data.copy_(values)
        pages.data[:, :, 0] = torch.nan
    scales = None if pages.scales is None else pages.scales.to(DEVICE)
    return KVPages(pages.data.to(DEVICE), scales, kind)


def attention64(
    q: Tensor, pages: KVPages, layer: int, batch: Batch, scale: float, window: int | None
) -> Tensor:
    """Row by row, head by head, over the positions that a row sees."""
    data = pages.data[layer].cpu().double()
    if pages.scales is not None:
        data = data * pages.scales[layer].cpu().double()[..., None]
    starts, contexts = batch.starts.tolist(), batch.contexts.tolist()
    size, group = pages.block_size, q.shape[1] // pages.data.shape[3]
    out = torch.zeros(q.shape, dtype=torch.float64)
    for i, context in enumerate(contexts):
        table = batch.tables[0][i].tolist()
        for row in range(starts[i], starts[i + 1]):
            here = context - starts[i + 1] + row
            first = 0 if window is None else max(0, here - window + 1)
            places = [(table[p // size], p % size) for p in range(first, here + 1)]
            blocks, offsets = (torch.tensor(part) for part in zip(*places, strict=True))
            keys, values = data[:, blocks, :, offsets].unbind(1)
            for head in range(q.shape[1]):
                scores = keys[:, head // group] @ q[row, head].cpu().double() * scale
                out[row, head] = scores.softmax(0) @ values[:, head // group]
    return out.flatten(1)
