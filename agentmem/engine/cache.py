"""Keys and values of one sequence, and the pool of finished ones kept for their prefixes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from agentmem.engine.config import DecoderConfig

_GRAIN = 64

PoolKey = tuple[str | None, str]
"""Tenant and session: what may share state."""


class KVCache:
    """Keys and values of all layers, [layers, 2, kv_heads, capacity, head_dim]; grows as needed.

    `length` positions are filled; it moves only after all layers have written a step.
    """

    def __init__(self, config: DecoderConfig, dtype: torch.dtype, capacity: int = 0) -> None:
        shape = (config.layers, 2, config.kv_heads, _grain(capacity), config.head_dim)
        self.data = torch.empty(shape, dtype=dtype)
        self.length = 0
        self._window = config.window

    @property
    def capacity(self) -> int:
        """Positions there is room for."""
        return self.data.shape[3]

    @property
    def size_bytes(self) -> int:
        """Bytes of the filled positions."""
        return self.bytes_of(self.length)

    def bytes_of(self, positions: int) -> int:
        """Bytes that this many positions take."""
        layers, two, heads, _, dim = self.data.shape
        return layers * two * heads * dim * positions * self.data.element_size()

    def reserve(self, positions: int) -> None:
        """Make room for this many positions; at least doubles, so that growing stays cheap."""
        if positions <= self.capacity:
            return
        room = max(positions, min(2 * self.capacity, self._window))
        layers, two, heads, _, dim = self.data.shape
        grown = torch.empty((layers, two, heads, _grain(room), dim), dtype=self.data.dtype)
        grown[:, :, :, : self.length] = self.data[:, :, :, : self.length]
        self.data = grown

    def write(self, layer: int, start: int, keys: Tensor, values: Tensor) -> None:
        """Store one step of a layer, both [n, kv_heads, head_dim], at position `start`."""
        stop = start + len(keys)
        self.data[layer, 0, :, start:stop] = keys.transpose(0, 1)
        self.data[layer, 1, :, start:stop] = values.transpose(0, 1)

    def prefix(self, positions: int, capacity: int) -> KVCache:
        """A copy of the first positions with room for more; the original stays as it is."""
        copy = object.__new__(KVCache)
        layers, two, heads, _, dim = self.data.shape
        room = _grain(max(positions, capacity))
        copy.data = torch.empty((layers, two, heads, room, dim), dtype=self.data.dtype)
        copy.data[:, :, :, :positions] = self.data[:, :, :, :positions]
        copy.length = positions
        copy._window = self._window
        return copy


class Match(NamedTuple):
    """A kept sequence and how many of its first tokens are wanted."""

    cache: KVCache
    shared: int


@dataclass(slots=True)
class _Entry:
    key: PoolKey
    tokens: Tensor
    cache: KVCache


class PrefixPool:
    """Finished sequences by tenant and session, the least recently used dropped first.

    Entries are never written to: a hit copies. Thread-safe.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._next = 0
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """Bytes held."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._entries)

    def match(self, key: PoolKey, tokens: Tensor) -> Match | None:
        """The sequence that shares the longest prefix with `tokens`, and how long it is."""
        with self._lock:
            best, shared = None, 0
            for number, entry in self._entries.items():
                if entry.key == key:
                    length = _shared(entry.tokens, tokens)
                    if length > shared:
                        best, shared = number, length
            if best is None:
                return None
            self._entries.move_to_end(best)
            return Match(self._entries[best].cache, shared)

    def put(self, key: PoolKey, tokens: Tensor, cache: KVCache) -> None:
        """Keep a finished sequence; those of the same key that it continues are dropped."""
        if cache.size_bytes > self._budget:
            return
        if cache.capacity > 1.25 * cache.length + _GRAIN:
            cache = cache.prefix(cache.length, cache.length)
        with self._lock:
            for number, entry in list(self._entries.items()):
                if entry.key == key and _shared(entry.tokens, tokens) == len(entry.tokens):
                    self._drop(number)
            self._entries[self._next] = _Entry(key, tokens, cache)
            self._next += 1
            self._bytes += cache.data.nbytes
            while self._bytes > self._budget and len(self._entries) > 1:
                self._drop(next(iter(self._entries)))

    def drop(self, key: PoolKey) -> int:
        """Forget a session; gives the bytes freed."""
        with self._lock:
            before = self._bytes
            for number, entry in list(self._entries.items()):
                if entry.key == key:
                    self._drop(number)
            return before - self._bytes

    def _drop(self, number: int) -> None:
        self._bytes -= self._entries.pop(number).cache.data.nbytes


def _grain(positions: int) -> int:
    return -(-positions // _GRAIN) * _GRAIN


def _shared(a: Tensor, b: Tensor) -> int:
    n = min(len(a), len(b))
    differing = torch.nonzero(a[:n] != b[:n])
    return int(differing[0]) if len(differing) else n
