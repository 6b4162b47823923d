"""Block-quantised GGUF storage types to float32, whole tensors at a time.

Layouts follow the GGML block formats; the arithmetic is float32 throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentmem.errors import DataError

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class StorageType:
    """A storage type: weights in a block and bytes of a block."""

    name: str
    block: int
    size_bytes: int


TYPES: dict[int, StorageType] = {
    0: StorageType("F32", 1, 4),
    1: StorageType("F16", 1, 2),
    2: StorageType("Q4_0", 32, 18),
    3: StorageType("Q4_1", 32, 20),
    6: StorageType("Q5_0", 32, 22),
    7: StorageType("Q5_1", 32, 24),
    8: StorageType("Q8_0", 32, 34),
    12: StorageType("Q4_K", 256, 144),
    13: StorageType("Q5_K", 256, 176),
    14: StorageType("Q6_K", 256, 210),
    30: StorageType("BF16", 1, 2),
}
_BY_NAME = {kind.name: kind for kind in TYPES.values()}


def dequantize(raw: U8, type_name: str) -> F32:
    """Flat float32 weights of a tensor's stored bytes."""
    kind = _BY_NAME[type_name]
    if type_name not in _DECODERS:
        raise DataError(f"storage type {type_name} cannot be read yet")
    return _DECODERS[type_name](raw.reshape(-1, kind.size_bytes)).reshape(-1)


def _f16(columns: U8) -> F32:
    """A float16 held in two byte columns, [n, 2] -> [n, 1]."""
    return np.ascontiguousarray(columns).view(np.float16).astype(np.float32)


def _nibbles(packed: U8) -> U8:
    """Low halves, then high halves: [n, 16] -> [n, 32]."""
    return np.concatenate((packed & 0x0F, packed >> 4), axis=1)


def _fifth_bits(words: U8) -> U8:
    """Bit i of a little-endian 32-bit word as value 16: [n, 4] -> [n, 32]."""
    return np.unpackbits(words, axis=1, bitorder="little") << np.uint8(4)


def _f32(blocks: U8) -> F32:
    return blocks.reshape(-1).view(np.float32).copy()


def _half(blocks: U8) -> F32:
    return blocks.reshape(-1).view(np.float16).astype(np.float32)


def _bf16(blocks: U8) -> F32:
    return (blocks.reshape(-1).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _q4_0(blocks: U8) -> F32:
    scale = _f16(blocks[:, :2])
    return (_nibbles(blocks[:, 2:]).view(np.int8) - np.int8(8)).astype(np.float32) * scale


def _q4_1(blocks: U8) -> F32:
    scale, low = _f16(blocks[:, :2]), _f16(blocks[:, 2:4])
    out = _nibbles(blocks[:, 4:]).astype(np.float32)
    out *= scale
    out += low
    return out


def _q5_0(blocks: U8) -> F32:
    scale = _f16(blocks[:, :2])
    codes = _nibbles(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6])
    out = (codes.view(np.int8) - np.int8(16)).astype(np.float32)
    out *= scale
    return out


def _q5_1(blocks: U8) -> F32:
    scale, low = _f16(blocks[:, :2]), _f16(blocks[:, 2:4])
    out = (_nibbles(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8])).astype(np.float32)
    out *= scale
    out += low
    return out


def _q8_0(blocks: U8) -> F32:
    out = blocks[:, 2:].view(np.int8).astype(np.float32)
    out *= _f16(blocks[:, :2])
    return out


def _k_scales(packed: U8) -> tuple[U8, U8]:
    """Six-bit scales and minima of eight sub-blocks, packed in 12 bytes: [n, 12] -> two [n, 8]."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate((first & 63, (third & 15) | ((first >> 6) << 4)), axis=1)
    minima = np.concatenate((second & 63, (third >> 4) | ((second >> 6) << 4)), axis=1)
    return scales, minima


def _k_affine(blocks: U8, codes: U8) -> F32:
    """Shared tail of Q4_K and Q5_K: codes [n, 8, 32] times scale minus minimum."""
    scales, minima = _k_scales(blocks[:, 4:16])
    scale = _f16(blocks[:, :2]) * scales.astype(np.float32)
    low = _f16(blocks[:, 2:4]) * minima.astype(np.float32)
    out = codes.astype(np.float32)
    out *= scale[:, :, None]
    out -= low[:, :, None]
    return out


def _k_nibbles(packed: U8) -> U8:
    """Four runs of 32 bytes, low halves before high halves in each: [n, 128] -> [n, 8, 32]."""
    runs = packed.reshape(-1, 4, 1, 32)
    return np.concatenate((runs & 0x0F, runs >> 4), axis=2).reshape(-1, 8, 32)


def _q4_k(blocks: U8) -> F32:
    return _k_affine(blocks, _k_nibbles(blocks[:, 16:]))


def _q5_k(blocks: U8) -> F32:
    shifts = np.arange(8, dtype=np.uint8).reshape(1, 8, 1)
    fifth = ((blocks[:, 16:48].reshape(-1, 1, 32) >> shifts) & np.uint8(1)) << np.uint8(4)
    return _k_affine(blocks, _k_nibbles(blocks[:, 48:]) | fifth)


def _q6_k(blocks: U8) -> F32:
    halves = blocks[:, :128].reshape(-1, 2, 1, 64)
    low = np.concatenate((halves & 0x0F, halves >> 4), axis=2).reshape(-1, 8, 32)
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8).reshape(1, 1, 4, 1)
    high = (blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts) & np.uint8(3)
    codes = (low | (high.reshape(-1, 8, 32) << np.uint8(4))).view(np.int8) - np.int8(32)
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32) * _f16(blocks[:, 208:])
    out: F32 = codes.reshape(-1, 16, 16).astype(np.float32)
    out *= scales[:, :, None]
    return out


_DECODERS: dict[str, Callable[[U8], F32]] = {
    "F32": _f32,
    "F16": _half,
    "BF16": _bf16,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
