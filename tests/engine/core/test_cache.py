"""Keys and values, and the pool of kept prefixes."""

from __future__ import annotations

import torch

from agentmem.engine.cache import KVCache, PrefixPool
from agentmem.engine.config import DecoderConfig, Rope

CONFIG = DecoderConfig(
    arch="llama", layers=2, width=8, heads=2, kv_heads=1, head_dim=4, ffn_width=8, vocab_size=9,
    window=256, norm_eps=1e-5, rope=Rope(10_000.0),
)  # fmt: skip
PER_POSITION = 2 * 2 * 1 * 4 * 4
A, B = ("tenant", "a"), ("tenant", "b")


def _filled(length: int, capacity: int = 0) -> KVCache:
    cache = KVCache(CONFIG, torch.float32, capacity)
    cache.reserve(length)
    for layer in range(2):
        keys = torch.randn(length, 1, 4)
        cache.write(layer, 0, keys, -keys)
    cache.length = length
    return cache


def test_growing_keeps_what_is_there() -> None:
    cache = _filled(60)
    before = cache.data[:, :, :, :60].clone()
    cache.reserve(65)
    assert cache.capacity == 128
    assert torch.equal(cache.data[:, :, :, :60], before)
    cache.reserve(256)
    assert cache.capacity == 256
    assert cache.size_bytes == 60 * PER_POSITION


def test_a_prefix_is_a_copy() -> None:
    cache = _filled(60)
    copy = cache.prefix(10, 100)
    assert (copy.length, copy.capacity) == (10, 128)
    assert torch.equal(copy.data[:, :, :, :10], cache.data[:, :, :, :10])
    before = cache.data.clone()
    copy.write(0, 5, torch.ones(3, 1, 4), torch.ones(3, 1, 4))
    assert torch.equal(cache.data[:, :, :, :60], before[:, :, :, :60])


def test_the_longest_shared_prefix_is_found_in_its_own_session() -> None:
    pool = PrefixPool(1 << 20)
    short, long = _filled(4), _filled(6)
    pool.put(A, torch.tensor([1, 2, 3, 9]), short)
    pool.put(A, torch.tensor([1, 2, 3, 4, 5, 6]), long)
    found = pool.match(A, torch.tensor([1, 2, 3, 4, 7]))
    assert found is not None and found.shared == 4
    assert pool.match(B, torch.tensor([1, 2, 3])) is None
    assert pool.match((None, "a"), torch.tensor([1, 2, 3])) is None
    assert pool.match(A, torch.tensor([7, 2, 3])) is None


def test_a_continuation_replaces_what_it_continues() -> None:
    pool = PrefixPool(1 << 20)
    pool.put(A, torch.tensor([1, 2]), _filled(2))
    pool.put(B, torch.tensor([1, 2]), _filled(2))
    pool.put(A, torch.tensor([1, 2, 3]), _filled(3))
    assert len(pool) == 2


def test_the_least_recently_used_goes_first() -> None:
    one = _filled(64).data.nbytes
    pool = PrefixPool(2 * one)
    pool.put(A, torch.arange(64), _filled(64))
    pool.put(B, torch.arange(64), _filled(64))
    assert pool.match(A, torch.arange(64)) is not None
    pool.put(("tenant", "c"), torch.arange(64), _filled(64))
    assert pool.size_bytes == 2 * one
    assert pool.match(B, torch.arange(64)) is None
    assert pool.match(A, torch.arange(64)) is not None


def test_what_is_larger_than_the_budget_is_not_kept() -> None:
    pool = PrefixPool(100)
    pool.put(A, torch.arange(64), _filled(64))
    assert (len(pool), pool.size_bytes) == (0, 0)


def test_unused_room_is_given_back() -> None:
    pool = PrefixPool(1 << 20)
    pool.put(A, torch.arange(10), _filled(10, capacity=256))
    assert pool.size_bytes == 64 * PER_POSITION


def test_a_dropped_session_frees_its_own_bytes() -> None:
    pool = PrefixPool(1 << 20)
    pool.put(A, torch.tensor([1]), _filled(1))
    pool.put(B, torch.tensor([1]), _filled(1))
    assert pool.drop(A) == 64 * PER_POSITION
    assert pool.match(A, torch.tensor([1])) is None
    assert pool.match(B, torch.tensor([1])) is not None
