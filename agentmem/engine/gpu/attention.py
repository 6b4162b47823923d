"""Launches rotation and attention over pages."""

from __future__ import annotations

import math

import torch
import triton
from torch import Tensor

from agentmem.engine.batch import Batch
from agentmem.engine.gpu.kernels import attention, pages
from agentmem.engine.gpu.norms import DTYPES
from agentmem.engine.kv.layout import KVPages

_TILE = 64
_KEYS = 64
_SPLITS = (64, 128, 256, 512, 1024)
_FIXED_SPLIT = 256
"""Positions a program reads where results must not depend on the batch."""
_ENOUGH = 256
"""Programs that keep a large card busy."""


def rope_store(
    qkv: Tensor,
    rotations: Tensor,
    slots: Tensor,
    store: KVPages,
    layer: int,
    kv_heads: int,
    qk_norm: Tensor | None,
    eps: float,
) -> Tensor:
    """Turns queries and keys, stores keys and values; as `Kernels.rope_store`."""
    n, all_heads, dim = qkv.shape
    heads = all_heads - 2 * kv_heads
    q = torch.empty((n, heads, dim), dtype=qkv.dtype, device=qkv.device)
    if n:
        pages.rope_store[(n, all_heads)](
            qkv, rotations, slots, qk_norm, q, *_of_layer(store, layer),
            heads, kv_heads, store.block_size, eps,
            DIM=dim, PAIRS=triton.next_power_of_2(dim // 2), num_warps=1,
        )  # fmt: skip
    return q


def attend(
    q: Tensor,
    store: KVPages,
    layer: int,
    batch: Batch,
    group: int,
    scale: float,
    window: int | None,
    invariant: bool,
) -> Tensor:
    """Causal attention over pages; as `Kernels.attend`.

    Sequences of one row are split over their context, the others over their rows. In the
    invariant mode every row is worked on alone, in pieces that lie at fixed positions.
    """
    out = torch.empty_like(q)
    if len(q):
        if invariant or batch.rows == batch.sequences:
            _decode(out, q, store, layer, batch, group, scale, window, invariant)
        else:
            _prefill(out, q, store, layer, batch, group, scale, window)
            _decode(out, q, store, layer, batch, group, scale, window, False)
    return out.view(len(q), -1)


def _prefill(
    out: Tensor,
    q: Tensor,
    store: KVPages,
    layer: int,
    batch: Batch,
    group: int,
    scale: float,
    window: int | None,
) -> None:
    heads, kv_heads, dim = q.shape[1], store.data.shape[3], q.shape[2]
    members = triton.next_power_of_2(heads // kv_heads)
    rows = max(1, _TILE // members)
    tiles = batch.rows // rows + batch.sequences
    attention.prefill_tiles[(tiles, kv_heads)](
        q, *_of_layer(store, layer), batch.tables[group], batch.starts, batch.contexts, out,
        batch.sequences, batch.tables[group].stride(0), scale * math.log2(math.e), window or 0,
        heads, kv_heads, store.block_size,
        DIM=dim, BD=max(16, triton.next_power_of_2(dim)), GROUP=heads // kv_heads, BG=members,
        BQ=rows, BN=_KEYS if dim <= 128 else 32, WINDOWED=window is not None, LEAVE_SINGLE=True,
        COMPUTE=_computed_in(q, store), num_warps=4,
    )  # fmt: skip


def _decode(
    out: Tensor,
    q: Tensor,
    store: KVPages,
    layer: int,
    batch: Batch,
    group: int,
    scale: float,
    window: int | None,
    each: bool,
) -> None:
    n, heads, dim = q.shape
    kv_heads, table = store.data.shape[3], batch.tables[group]
    count = n if each else batch.sequences
    longest = table.shape[1] * store.block_size
    split = _FIXED_SPLIT if each else split_for(count * kv_heads, longest)
    parts = triton.cdiv(longest, split)
    part = torch.empty((n, heads, parts, dim), dtype=torch.float32, device=q.device)
    peak = torch.empty((n, heads, parts), dtype=torch.float32, device=q.device)
    mass = torch.empty_like(peak)
    shape = {"DIM": dim, "BD": max(16, triton.next_power_of_2(dim)), "SPLIT": split}
    shape |= {"WINDOWED": window is not None, "EACH": each}
    attention.decode_parts[(count, kv_heads, parts)](
        q, *_of_layer(store, layer), table, batch.starts, batch.contexts, part, peak, mass,
        batch.sequences, table.stride(0), parts, scale * math.log2(math.e), window or 0,
        heads, kv_heads, store.block_size,
        GROUP=heads // kv_heads, BG=max(16, triton.next_power_of_2(heads // kv_heads)),
        BN=min(_KEYS, split), COMPUTE=_computed_in(q, store), num_warps=4, **shape,
    )  # fmt: skip
    attention.decode_join[(count, heads)](
        part, peak, mass, batch.starts, batch.contexts, out,
        batch.sequences, parts, window or 0, heads, BP=16, num_warps=1, **shape,
    )  # fmt: skip


def split_for(programs: int, longest: int) -> int:
    """Positions a program reads: as many as leave enough programs to keep a card busy."""
    for split in reversed(_SPLITS):
        if programs * (longest // split) >= _ENOUGH:
            return split
    return _SPLITS[0]


def _of_layer(store: KVPages, layer: int) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """(keys, values, scales of keys, scales of values) of one layer."""
    keys, values = store.data[layer]
    if store.scales is None:
        return keys, values, None, None
    return keys, values, store.scales[layer, 0], store.scales[layer, 1]


def _computed_in(q: Tensor, store: KVPages) -> object:
    """The type of products: float32 where either side is that."""
    exact = torch.float32 in (q.dtype, store.data.dtype)
    return DTYPES[torch.float32 if exact else q.dtype]
