"""Attention over pages in torch: a sequence's blocks are gathered, then attended to as a whole.

What lies behind a sequence's last position in a block is undefined and may be no number, so it is
cut off or cleared before it meets a product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from agentmem.engine.kv.layout import KVPages
from agentmem.engine.quant.kv import dequantise_rows

_TILE = 16
"""Rows of an invariant tile; tiles begin at multiples of it."""
_PADDING = 1.5
"""Sequences attended to together hold at most this many times the shortest's positions, ..."""
_FREE_PADDING = 64
"""... or this many more."""


@dataclass(frozen=True, slots=True)
class Run:
    """The rows first:stop of a pass: the last ones of `context` positions, blocks in `table`."""

    first: int
    stop: int
    context: int
    table: Tensor

    @property
    def rows(self) -> int:
        """Rows of this sequence."""
        return self.stop - self.first

    @property
    def start(self) -> int:
        """Position of the first row."""
        return self.context - self.rows

    def first_key(self, window: int | None) -> int:
        """The first position that any of its rows sees."""
        return max(0, self.start - window + 1) if window else 0


def by_length(runs: list[Run]) -> Iterator[list[Run]]:
    """Sequences of about the same length, so that little is gathered for padding."""
    alike: list[Run] = []
    for run in sorted(runs, key=lambda r: r.context):
        if alike:
            shortest = alike[0].context
            if run.context > max(_PADDING * shortest, shortest + _FREE_PADDING):
                yield alike
                alike = []
        alike.append(run)
    if alike:
        yield alike


def gather(pages: KVPages, layer: int, blocks: Tensor, dtype: torch.dtype) -> Tensor:
    """Keys and values of some blocks [..., m], as [2, ..., kv_heads, m * block_size, dim]."""
    _, two, count, heads, size, dim = pages.data.shape
    kind = torch.arange(two).view(-1, *[1] * (blocks.dim() + 1))
    head = torch.arange(heads)[:, None]
    rows = (kind * count + blocks.long()[..., None, :]) * heads + head
    shape = (*rows.shape[:-1], rows.shape[-1] * size)
    flat = rows.flatten()
    data = pages.data[layer].view(-1, size * dim).index_select(0, flat).view(*shape, dim)
    if pages.scales is None:
        return data.to(dtype)
    scales = pages.scales[layer].view(-1, size).index_select(0, flat).view(shape)
    return dequantise_rows(data, scales, dtype)


def attend_run(
    q: Tensor, pages: KVPages, layer: int, run: Run, scale: float, window: int | None
) -> Tensor:
    """Several rows of one sequence: [rows, heads, dim]."""
    first = run.first_key(window)
    keys, values = _own(pages, layer, run, first, q.dtype)
    causal = first == 0 and run.start == 0 and (window is None or run.context <= window)
    mask = None if causal else _mask(run.start, run.context, first, run.context, window, q.dtype)
    return _attention(q[run.first : run.stop], keys, values, mask, causal, scale)


def attend_singles(
    q: Tensor, pages: KVPages, layer: int, runs: list[Run], scale: float, window: int | None
) -> Tensor:
    """The one row each of several sequences, q [s, heads, dim]: [s, heads, dim]."""
    s, heads, dim = q.shape
    kv_heads, size = pages.data.shape[3], pages.block_size
    # the heads of a group are so many queries at one place: no mask among them, no expansion
    q = q.reshape(s, kv_heads, heads // kv_heads, dim)
    if s == 1:
        keys, values = _own(pages, layer, runs[0], runs[0].first_key(window), q.dtype)
        out = F.scaled_dot_product_attention(q, keys[None], values[None], scale=scale)
        return out.reshape(s, heads, dim)
    begin = torch.tensor([run.first_key(window) // size for run in runs])
    end = torch.tensor([run.context for run in runs])
    wide = int((-(-end // size) - begin).max())
    columns = begin[:, None] + torch.arange(wide)
    table = torch.stack([run.table for run in runs])
    blocks = table.gather(1, columns.clamp(max=table.shape[1] - 1))
    place = begin[:, None] * size + torch.arange(wide * size)
    seen = place < end[:, None]
    if window is not None:
        seen &= place >= end[:, None] - window
    both = gather(pages, layer, blocks, q.dtype)
    both.masked_fill_(~seen[:, None, :, None], 0)
    mask = torch.zeros(seen.shape, dtype=q.dtype).masked_fill_(~seen, -torch.inf)
    out = F.scaled_dot_product_attention(
        q, both[0], both[1], attn_mask=mask[:, None, None], scale=scale
    )
    return out.reshape(s, heads, dim)


def attend_tiles(
    q: Tensor,
    out: Tensor,
    pages: KVPages,
    layer: int,
    run: Run,
    scale: float,
    window: int | None,
) -> None:
    """Any rows of one sequence, each computed in a shape that only its position decides."""
    _, heads, dim = q.shape
    opening = run.start // _TILE * _TILE
    base = max(0, opening - window + 1) if window else 0
    keys, values = _own(pages, layer, run, base, q.dtype)
    # what no row here sees may be gone already
    gone = run.first_key(window) - base
    keys[:, :gone], values[:, :gone] = 0, 0
    surplus = -run.context % _TILE
    keys, values = F.pad(keys, (0, 0, 0, surplus)), F.pad(values, (0, 0, 0, surplus))
    for tile in range(opening, run.context, _TILE):
        lo, hi = max(tile, run.start), min(tile + _TILE, run.context)
        rows = q.new_zeros(_TILE, heads, dim)
        rows[lo - tile : hi - tile] = q[run.first + lo - run.start : run.first + hi - run.start]
        first, stop = max(0, tile - window + 1) if window else 0, tile + _TILE
        mask = _mask(tile, stop, first, stop, window, q.dtype)
        part = slice(first - base, stop - base)
        # copies: how the operands lie in memory must not depend on the rest either
        found = _attention(
            rows, keys[:, part].contiguous(), values[:, part].contiguous(), mask, False, scale
        )
        out[run.first + lo - run.start : run.first + hi - run.start] = found[lo - tile : hi - tile]


def _own(
    pages: KVPages, layer: int, run: Run, first: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Keys and values of the positions from `first` on, each [kv_heads, m, dim]."""
    size = pages.block_size
    begin = first // size
    both = gather(pages, layer, run.table[begin : -(-run.context // size)], dtype)
    both = both[:, :, first - begin * size : run.context - begin * size]
    return both[0], both[1]


@lru_cache(maxsize=8)
def _mask(
    start: int, stop: int, first: int, end: int, window: int | None, dtype: torch.dtype
) -> Tensor:
    """Additive, [stop - start, end - first]: which keys first..end the rows start..stop see."""
    queries, keys = torch.arange(start, stop)[:, None], torch.arange(first, end)[None]
    hidden = keys > queries
    if window is not None:
        hidden |= keys <= queries - window
    return torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, -torch.inf)


def _attention(
    q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> Tensor:
    """q [n, heads, dim] over keys and values [kv_heads, m, dim]: [n, heads, dim].

    Neighbouring query heads share a key head; nothing is repeated in memory.
    """
    n, heads, dim = q.shape
    groups = heads // len(keys)
    q = q.view(n, len(keys), groups, dim).permute(1, 2, 0, 3)
    shape = (len(keys), groups, keys.shape[1], dim)
    out = F.scaled_dot_product_attention(
        q,
        keys[:, None].expand(shape),
        values[:, None].expand(shape),
        attn_mask=mask,
        is_causal=causal,
        scale=scale,
    )
    return out.permute(2, 0, 1, 3).reshape(n, heads, dim)
