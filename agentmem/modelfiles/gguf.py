"""Reading GGUF files (versions 2 and 3, little endian) from a memory map."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentmem.errors import DataError
from agentmem.modelfiles.dequant import TYPES, dequantize

_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9
_U64 = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of the file: row-major shape (outermost first), storage type, place."""

    name: str
    shape: tuple[int, ...]
    type_name: str
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class GGUF:
    """An open GGUF file. Strings of metadata are `str`, arrays are lists."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]
    _map: mmap.mmap = field(repr=False)

    @classmethod
    def open(cls, path: Path | str) -> GGUF:
        """Map the file and read its header; DataError when it is no readable GGUF file."""
        path = Path(path)
        try:
            with path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise DataError(f"cannot read {path}: {error}") from error
        try:
            metadata, tensors = _Header(mapped).read()
        except (struct.error, KeyError, UnicodeDecodeError, IndexError, OverflowError) as error:
            raise DataError(f"{path} has a broken GGUF header ({error!r})") from error
        except _NotGGUFError as error:
            raise DataError(f"{path}: {error}") from error
        _check_places(path, tensors, len(mapped))
        return cls(path, metadata, tensors, mapped)

    @property
    def arch(self) -> str:
        """The model architecture, e.g. `llama`."""
        return str(self.metadata.get("general.architecture", ""))

    def value(self, key: str, default: Any = None) -> Any:
        """A metadata value of the model's architecture, e.g. `value("block_count")`."""
        return self.metadata.get(f"{self.arch}.{key}", default)

    def raw(self, name: str) -> NDArray[np.uint8]:
        """The stored bytes of a tensor, without a copy."""
        info = self._info(name)
        return np.frombuffer(self._map, np.uint8, info.size_bytes, info.offset)

    def tensor(self, name: str, rows: slice = slice(None)) -> NDArray[np.float32]:
        """A tensor, or some of its outermost rows, as float32 in row-major shape."""
        info = self._info(name)
        raw = self.raw(name).reshape(info.shape[0], -1)[rows]
        return dequantize(raw, info.type_name).reshape(len(raw), *info.shape[1:])

    def let_go(self) -> None:
        """Drop what the system holds in memory of the file; it is read again when asked for."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def _info(self, name: str) -> TensorInfo:
        if name not in self.tensors:
            raise DataError(f"{self.path} holds no tensor {name!r}")
        return self.tensors[name]


class _NotGGUFError(Exception):
    pass


class _Header:
    """A cursor over the header. Speed matters: vocabularies have 262,144 strings."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0

    def read(self) -> tuple[dict[str, Any], dict[str, TensorInfo]]:
        if self.data[:4] != b"GGUF":
            raise _NotGGUFError("no GGUF file")
        self.at = 4
        version = self._scalar("I")
        if version not in (2, 3):
            raise _NotGGUFError(f"GGUF version {version} is not supported (2 and 3 are)")
        n_tensors, n_keys = self._scalar("Q"), self._scalar("Q")
        metadata: dict[str, Any] = {}
        for _ in range(n_keys):
            key = self._string()
            metadata[key] = self._value(self._scalar("I"))
        infos = [self._tensor() for _ in range(n_tensors)]
        align = int(metadata.get("general.alignment", 32))
        base = -(-self.at // align) * align
        return metadata, {
            name: TensorInfo(name, shape, kind, base + offset, size)
            for name, shape, kind, offset, size in infos
        }

    def _scalar(self, code: str) -> Any:
        layout = struct.Struct("<" + code)
        (value,) = layout.unpack_from(self.data, self.at)
        self.at += layout.size
        return value

    def _string(self) -> str:
        (length,) = _U64.unpack_from(self.data, self.at)
        start = self.at + 8
        self.at = start + length
        return self.data[start : self.at].decode("utf-8", "surrogateescape")

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            inner, count = self._scalar("I"), self._scalar("Q")
            return self._array(inner, count)
        return self._scalar(_SCALARS[kind])

    def _array(self, kind: int, count: int) -> list[Any]:
        if kind == _STRING:
            return self._strings(count)
        if kind == _ARRAY:
            return [self._value(kind) for _ in range(count)]
        layout = struct.Struct(f"<{count}{_SCALARS[kind]}")
        values = list(layout.unpack_from(self.data, self.at))
        self.at += layout.size
        return values

    def _strings(self, count: int) -> list[str]:
        data, at, unpack = self.data, self.at, _U64.unpack_from
        out: list[str] = []
        for _ in range(count):
            (length,) = unpack(data, at)
            start = at + 8
            at = start + length
            out.append(data[start:at].decode("utf-8", "surrogateescape"))
        self.at = at
        return out

    def _tensor(self) -> tuple[str, tuple[int, ...], str, int, int]:
        name = self._string()
        dims = [self._scalar("Q") for _ in range(self._scalar("I"))]
        code, offset = self._scalar("I"), self._scalar("Q")
        if code not in TYPES:
            raise _NotGGUFError(f"tensor {name!r} has unknown storage type {code}")
        kind = TYPES[code]
        count = int(np.prod(dims, dtype=np.int64)) if dims else 1
        if count % kind.block:
            raise _NotGGUFError(f"tensor {name!r} does not fill its blocks of {kind.block}")
        return name, tuple(reversed(dims)), kind.name, offset, count // kind.block * kind.size_bytes


def _check_places(path: Path, tensors: dict[str, TensorInfo], size: int) -> None:
    for info in tensors.values():
        if info.offset + info.size_bytes > size:
            raise DataError(f"{path} is cut short: tensor {info.name!r} ends behind its end")
