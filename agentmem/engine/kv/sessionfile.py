"""The file of an exported session: a magic, a JSON header, raw pages, a digest of it all.

    8 bytes "AMKVSESS" | u32 version | u64 header bytes | header | pages | 32 bytes blake2b

Little-endian. Pages come group by group, in the header's order of nodes; each is the block's
data [layers, 2, kv_heads, block_size, head_dim] and then, for int8, its scales.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

import torch

from agentmem.engine.kv.layout import PAGE_FORMAT, GroupSpec, KVPages
from agentmem.engine.kv.ownership import Step
from agentmem.errors import DataError

MAGIC = b"AMKVSESS"
VERSION = 1
READABLE = (1,)
"""This version and, once there is one, the one before."""
_PREFIX = struct.Struct("<8sIQ")
DIGEST_BYTES = 32
_MOST_HEADER_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Stamp:
    """What state depends on; two stamps that differ in anything cannot exchange it.

    `identity` is the digest at the root of the hash chain, in hex: it holds what has no field here.
    """

    weights: str
    mode: str
    backend: str
    kind: str
    tokenizer: str
    block_size: int
    groups: tuple[tuple[int, ...], ...]
    """(kv_heads, head_dim, window or 0, *layers) of each."""
    identity: str
    page_format: int = PAGE_FORMAT

    @staticmethod
    def groups_of(specs: Iterable[GroupSpec]) -> tuple[tuple[int, ...], ...]:
        """The geometry field."""
        return tuple((s.kv_heads, s.head_dim, s.window or 0, *s.layers) for s in specs)


@dataclass(frozen=True, slots=True)
class Header:
    """All of a file but its pages."""

    stamp: Stamp
    session_id: str
    epoch: int
    move: bool
    nodes: tuple[tuple[int, tuple[int, ...]], ...]
    """(index of the parent or -1, token ids) of each block, parents first."""
    present: tuple[tuple[int, ...], ...]
    """Per group, the nodes whose pages follow."""
    counts: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Requests, cached, computed and generated tokens of the session so far."""

    @property
    def tokens(self) -> int:
        """Token positions in the file, shared beginnings once."""
        return sum(len(tokens) for _, tokens in self.nodes)


def write(out: BinaryIO, header: Header, pages: Iterable[bytes], step: Step) -> int:
    """Write a whole file; gives its size in bytes. It is on the disk when this returns."""
    text = json.dumps(asdict(header), separators=(",", ":")).encode()
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    size = 0
    for part in (_PREFIX.pack(MAGIC, VERSION, len(text)), text):
        digest.update(part)
        size += out.write(part)
    step("pages")
    for page in pages:
        digest.update(page)
        size += out.write(page)
    step("digest")
    size += out.write(digest.digest())
    out.flush()
    os.fsync(out.fileno())
    return size


def read_header(file: BinaryIO, path: Path) -> Header:
    """The header of an open file, which then stands at its pages. DataError when it has none."""
    prefix = file.read(_PREFIX.size)
    if len(prefix) < _PREFIX.size or prefix[: len(MAGIC)] != MAGIC:
        raise DataError(f"{path}: not an exported session")
    _, version, size = _PREFIX.unpack(prefix)
    if version not in READABLE:
        raise DataError(f"{path}: session file version {version}, this engine reads {READABLE}")
    if size > _MOST_HEADER_BYTES:
        raise DataError(f"{path}: damaged (a header of {size} bytes)")
    try:
        raw = json.loads(file.read(size))
        stamp = raw["stamp"]
        return Header(
            Stamp(**{**stamp, "groups": tuple(tuple(group) for group in stamp["groups"])}),
            raw["session_id"],
            raw["epoch"],
            raw["move"],
            tuple((parent, tuple(tokens)) for parent, tokens in raw["nodes"]),
            tuple(tuple(nodes) for nodes in raw["present"]),
            tuple(raw["counts"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: damaged (its header: {error})") from error


def check_shape(header: Header, path: Path) -> None:
    """DataError unless nodes and pages fit together: a digest says whole, not well made."""
    size = header.stamp.block_size
    good = isinstance(header.epoch, int) and header.epoch >= 1 and bool(header.session_id)
    good = good and len(header.present) == len(header.stamp.groups) and len(header.counts) == 4
    for at, (parent, tokens) in enumerate(header.nodes):
        good = good and -1 <= parent < at and 1 <= len(tokens) <= size
        good = good and (parent < 0 or len(header.nodes[parent][1]) == size)
        good = good and all(isinstance(t, int) and 0 <= t < 1 << 32 for t in tokens)
    for nodes in header.present:
        good = good and len(set(nodes)) == len(nodes)
        good = good and all(0 <= at < len(header.nodes) for at in nodes)
    if not good:
        raise DataError(f"{path}: damaged (its header contradicts itself)")


def check_digest(file: BinaryIO, path: Path) -> None:
    """DataError unless the file is whole, to the last bit. It then stands at its begin."""
    size = file.seek(0, os.SEEK_END) - DIGEST_BYTES
    file.seek(0)
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    while size > 0 and (part := file.read(min(size, 1 << 20))):
        digest.update(part)
        size -= len(part)
    if file.read() != digest.digest():
        raise DataError(f"{path}: damaged (its digest does not fit; cut short or changed)")
    file.seek(0)


def differences(theirs: Stamp, mine: Stamp) -> list[str]:
    """Each field in which two stamps differ, in words."""
    return [
        f"{field.name} is {_short(a)}, here {_short(b)}"
        for field in fields(Stamp)
        if (a := getattr(theirs, field.name)) != (b := getattr(mine, field.name))
    ]


def page_bytes(pages: KVPages, block: int) -> bytes:
    """One block over all layers, its scales behind."""
    parts = [pages.data] if pages.scales is None else [pages.data, pages.scales]
    return b"".join(
        part[:, :, block].contiguous().view(torch.uint8).numpy().tobytes() for part in parts
    )


def put_page(pages: KVPages, block: int, content: bytes) -> None:
    """The reverse of `page_bytes`."""
    start = 0
    for part in [pages.data] if pages.scales is None else [pages.data, pages.scales]:
        target = part[:, :, block]
        size = target.numel() * target.element_size()
        raw = torch.frombuffer(bytearray(content[start : start + size]), dtype=part.dtype)
        target.copy_(raw.reshape(target.shape))
        start += size


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
