"""Weights in huge pages: memory of 4 KiB pages is read at half to two thirds of the speed.

What the system refuses is left as it is: the tensors work in any memory, and `huge_bytes` says
what was really given.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from agentmem.engine.kernels.weights import Weight

HUGE = 2 << 20
_COLLAPSE = 25
"""MADV_COLLAPSE (Linux 6.1): make huge pages of what is already written."""
_SMALLEST = 1 << 16
"""Tensors below this stay where they are."""
_ALIGN = 64
_CHUNK = 32 << 20
"""Size of an arena that matrices share; half of it is large."""


class Arena:
    """One mapping that asks for huge pages before it is first written; tensors are cut from it.

    Freed when the last tensor is.
    """

    def __init__(self, size: int) -> None:
        size = -(-size // HUGE) * HUGE
        # one huge page more: a mapping begins anywhere
        self._map = mmap.mmap(-1, size + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        advice = getattr(mmap, "MADV_HUGEPAGE", None)
        self.asked = False
        if advice is not None:
            try:
                self._map.madvise(advice)
                self.asked = True
            except OSError:
                pass  # no huge pages in this kernel: plain memory then
        self._room = torch.frombuffer(self._map, dtype=torch.uint8)
        self._at = -self._room.data_ptr() % HUGE
        self._end = self._at + size

    def left(self) -> int:
        """Bytes not given out."""
        return self._end - self._at

    def take(self, tensor: Tensor) -> Tensor:
        """A copy of a tensor in the arena; ValueError when it does not fit."""
        size = tensor.nbytes
        if size > self.left():
            raise ValueError(f"{size} bytes do not fit in the {self.left()} left")
        place = self._room[self._at : self._at + size]
        self._at += -(-size // _ALIGN) * _ALIGN
        copy = place.view(tensor.dtype).view(tensor.shape)
        copy.view(torch.uint8).copy_(tensor.contiguous().view(torch.uint8))
        return copy


class _Shared:
    """The arena that small matrices go to, one behind the other; a new one when it is full."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arena: Arena | None = None

    def take(self, tensor: Tensor) -> Tensor:
        """A copy in huge pages, or the tensor itself where the system gives none."""
        with self._lock:
            if self._arena is None or self._arena.left() < tensor.nbytes:
                self._arena = Arena(_CHUNK)
            return self._arena.take(tensor) if self._arena.asked else tensor


_shared = _Shared()


def settle(weight: Weight) -> Weight:
    """A weight whose data lies in huge pages where they are to be had.

    Large ones are collapsed in place, or copied where the system cannot; smaller ones share an
    arena, in the order in which they come, as a pass will read them. Small ones stay.
    """
    data = weight.data
    if data.nbytes < _SMALLEST or not data.is_contiguous() or data.device.type != "cpu":
        return weight
    if data.nbytes < _CHUNK // 2:
        return replace(weight, data=_shared.take(data))
    if collapse(data):
        return weight
    arena = Arena(data.nbytes)
    return replace(weight, data=arena.take(data)) if arena.asked else weight


def collapse(tensor: Tensor) -> bool:
    """Asks the system to make huge pages of a tensor's memory; False where it does not."""
    start = -(-tensor.data_ptr() // HUGE) * HUGE
    size = (tensor.data_ptr() + tensor.nbytes) // HUGE * HUGE - start
    if size < HUGE:
        return False
    # private file mappings, as a model file opened in place, stay in the page cache
    found: int = _libc().madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _COLLAPSE)
    return found == 0


def huge_bytes() -> int | None:
    """Bytes of this process in huge pages; None where the system does not say."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("AnonHugePages:"):
            return int(line.split()[1]) * 1024
    return None


def policy() -> str | None:
    """When the system gives huge pages: `always`, `madvise` or `never`; None where unknown."""
    try:
        text = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:
        return None
    return text[text.index("[") + 1 : text.index("]")]


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
