"""Attention over pages against float64, whatever the pages, windows, groups and company."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from agentmem.engine.batch import Batch
from agentmem.engine.kernels.native import NativeKernels
from agentmem.engine.kv.layout import NULL_BLOCK, GroupSpec, KVKind, KVPages
from agentmem.engine.quant.kv import quantise_rows

BLOCK = 16


@dataclass
class Scene:
    """Sequences with scattered blocks; what lies behind a sequence's end is no number."""

    pages: KVPages
    batch: Batch
    q: Tensor
    keys: list[Tensor]
    values: list[Tensor]


def scene(
    runs: list[tuple[int, int]],
    *,
    heads: int = 3,
    kv_heads: int = 1,
    dim: int = 64,
    kind: KVKind = "bf16",
    window: int | None = None,
) -> Scene:
    """`runs` are (rows, context) of each sequence."""
    dtype = torch.float32 if kind == "fp32" else torch.bfloat16
    need = [-(-context // BLOCK) for _, context in runs]
    pages = KVPages.empty(GroupSpec((0, 1), kv_heads, dim), sum(need) + 1, BLOCK, kind)
    pages.data.fill_(torch.nan if kind != "int8" else 77)
    if pages.scales is not None:
        pages.scales.fill_(torch.nan)
    order = (torch.randperm(sum(need)) + 1).int()
    table = torch.full((len(runs), max(need)), NULL_BLOCK, dtype=torch.int32)
    keys, values, at = [], [], 0
    for i, (rows, context) in enumerate(runs):
        table[i, : need[i]] = order[at : at + need[i]]
        at += need[i]
        both = torch.randn(2, context, kv_heads, dim).to(dtype)
        gone = max(0, context - rows - window + 1) // BLOCK if window else 0
        for which in range(2):
            for p in range(gone * BLOCK, context):
                _put(pages, which, int(table[i, p // BLOCK]), p % BLOCK, both[which, p])
        table[i, :gone] = NULL_BLOCK
        if kind == "int8":
            codes, scales = quantise_rows(both)
            both = codes.float() * scales[..., None]
        keys.append(both[0].double())
        values.append(both[1].double())
    starts = torch.tensor([0, *(r for r, _ in runs)]).cumsum(0).int()
    n = int(starts[-1])
    none = torch.empty(n, dtype=torch.int64)
    contexts = torch.tensor([c for _, c in runs], dtype=torch.int32)
    batch = Batch(none, none, starts, contexts, (table,), (none,), none)
    return Scene(pages, batch, torch.randn(n, heads, dim).to(dtype), keys, values)


def _put(pages: KVPages, which: int, block: int, offset: int, rows: Tensor) -> None:
    if pages.scales is None:
        pages.data[1, which, block, :, offset] = rows
        return
    codes, scales = quantise_rows(rows)
    pages.data[1, which, block, :, offset] = codes
    pages.scales[1, which, block, :, offset] = scales


def exact(s: Scene, scale: float, window: int | None) -> Tensor:
    out = []
    starts = s.batch.starts.tolist()
    for i, context in enumerate(s.batch.contexts.tolist()):
        first, stop = starts[i], starts[i + 1]
        for row in range(first, stop):
            p = context - (stop - row)
            lo = max(0, p - window + 1) if window else 0
            repeat = s.q.shape[1] // s.keys[i].shape[1]
            k = s.keys[i][lo : p + 1].repeat_interleave(repeat, 1)
            v = s.values[i][lo : p + 1].repeat_interleave(repeat, 1)
            weights = torch.einsum("hd,khd->hk", s.q[row].double(), k) * scale
            out.append(torch.einsum("hk,khd->hd", weights.softmax(-1), v).flatten())
    return torch.stack(out)


def attend(kernels: NativeKernels, s: Scene, window: int | None = None) -> Tensor:
    return kernels.attend(s.q, s.pages, 1, s.batch, 0, s.q.shape[2] ** -0.5, window)


def check(kernels: NativeKernels, s: Scene, window: int | None = None) -> None:
    found = attend(kernels, s, window)
    wanted = exact(s, s.q.shape[2] ** -0.5, window)
    assert found.dtype == s.q.dtype
    limit = 1e-5 if s.q.dtype == torch.float32 else 1.5e-2
    assert float((found.double() - wanted).abs().max()) < limit


@pytest.mark.parametrize("kind", ["bf16", "fp32", "int8"])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim"), [(3, 1, 64), (4, 1, 256), (7, 1, 64), (4, 2, 32), (2, 2, 80)]
)
def test_shapes(kernels: NativeKernels, kind: KVKind, heads: int, kv_heads: int, dim: int) -> None:
    shape = {"heads": heads, "kv_heads": kv_heads, "dim": dim, "kind": kind}
    check(kernels, scene([(1, 1)], **shape))
    check(kernels, scene([(1, 70), (1, 3), (5, 64), (37, 100)], **shape))


@pytest.mark.parametrize("kind", ["bf16", "fp32", "int8"])
@pytest.mark.parametrize("window", [1, 5, 64, 100])
def test_windows(kernels: NativeKernels, kind: KVKind, window: int) -> None:
    runs = [(1, 150), (3, 3), (40, 150), (1, 7)]
    check(kernels, scene(runs, kind=kind, window=window), window)


@pytest.mark.parametrize("kind", ["bf16", "fp32", "int8"])
def test_long_contexts_are_cut_in_chunks(kernels: NativeKernels, kind: KVKind) -> None:
    check(kernels, scene([(2, 1100), (1, 600)], heads=2, dim=32, kind=kind))
    check(kernels, scene([(6, 1100)], heads=2, dim=32, kind=kind, window=700), 700)


@pytest.mark.parametrize("kind", ["bf16", "fp32", "int8"])
@pytest.mark.parametrize("window", [None, 130])
def test_a_row_is_the_same_in_any_pass(
    kernels: NativeKernels, kind: KVKind, window: int | None
) -> None:
    """All rows at once, in chunks, one by one, and beside others: bit for bit."""
    s = scene([(0, 1), (650, 650)], heads=2, dim=32, kind=kind)
    whole = attend(kernels, s, window)
    table = s.batch.tables[0][1:]
    for first, stop in ((0, 1), (0, 64), (63, 67), (129, 200), (511, 515), (600, 601), (649, 650)):
        q = torch.cat((torch.randn(2, 2, 32).to(s.q.dtype), s.q[first:stop]))
        batch = Batch(
            s.batch.tokens,
            s.batch.positions,
            torch.tensor([0, 2, 2 + stop - first], dtype=torch.int32),
            torch.tensor([9, stop], dtype=torch.int32),
            (table.expand(2, -1).contiguous(),),
            s.batch.slots,
            s.batch.outputs,
        )
        part = Scene(s.pages, batch, q, [], [])
        assert torch.equal(attend(kernels, part, window)[2:], whole[first:stop])


def test_threads_do_not_matter(kernels: NativeKernels) -> None:
    before = torch.get_num_threads()
    s = scene([(1, 1300), (2, 700)], heads=4, dim=32)
    try:
        torch.set_num_threads(1)
        one = attend(kernels, s)
        torch.set_num_threads(2)
        assert torch.equal(attend(kernels, s), one)
    finally:
        torch.set_num_threads(before)


def test_nan_in_a_query_stays_in_its_row(kernels: NativeKernels) -> None:
    s = scene([(3, 40)])
    s.q[1, 0, 3] = torch.nan
    found = attend(kernels, s).view(3, 3, 64)
    assert bool(found[1, 0].isnan().all())
    assert not bool(found[[0, 2]].isnan().any())
    assert not bool(found[1, 1:].isnan().any())


def test_large_scores(kernels: NativeKernels) -> None:
    s = scene([(4, 90)], kind="fp32")
    s.q *= 300
    check(kernels, s)


def test_no_rows(kernels: NativeKernels) -> None:
    s = scene([(0, 5)])
    assert attend(kernels, s).shape == (0, 192)
