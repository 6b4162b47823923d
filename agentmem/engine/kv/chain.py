"""The hash chain that names the content of blocks, and the index of what continues what."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

TOKEN_BYTES = 4
_KEY_BYTES = 16


def root(identity: bytes, tenant: str | None) -> bytes:
    """Where the chains of a tenant begin. Session ids never enter."""
    salt = b"-" if tenant is None else b"+" + tenant.encode("utf-8", "surrogatepass")
    digest = blake2b(len(identity).to_bytes(8, "little"), digest_size=_KEY_BYTES)
    digest.update(identity)
    digest.update(salt)
    return digest.digest()


def encode(tokens: Sequence[int]) -> bytes:
    """Token ids as fixed-width bytes."""
    return array("I", tokens).tobytes()


def decode(part: bytes) -> tuple[int, ...]:
    """The token ids back."""
    return tuple(array("I", part))


def link(parent: bytes, part: bytes) -> bytes:
    """Key of the encoded tokens `part` after everything that `parent` names."""
    return blake2b(parent + part, digest_size=_KEY_BYTES).digest()


@dataclass(slots=True)
class Node:
    """A block's worth of tokens (or the shorter end of a sequence) after its parent."""

    parent: bytes
    part: bytes
    groups: int = 0
    """In how many groups its block is cached."""


class Partial(NamedTuple):
    """A cached block that begins as wanted, and in how many tokens."""

    key: bytes
    tokens: int


class ChainIndex:
    """What is cached under which key, and which nodes continue a key.

    Continuations are sorted by their tokens: the one with the longest common beginning is a
    neighbour of where the wanted tokens would stand. Only nodes cached in all groups are listed.
    """

    def __init__(self, groups: int) -> None:
        self._groups = groups
        self._nodes: dict[bytes, Node] = {}
        self._children: dict[bytes, list[bytes]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def node(self, key: bytes) -> Node | None:
        """What the key names, while any group has it."""
        return self._nodes.get(key)

    def add(self, key: bytes, parent: bytes, part: bytes) -> bytes | None:
        """One more group has it. Gives the key of a shorter end that this one makes useless."""
        node = self._nodes.setdefault(key, Node(parent, part))
        node.groups += 1
        if node.groups != self._groups:
            return None
        parts = self._children.setdefault(parent, [])
        at = bisect_left(parts, part)
        parts.insert(at, part)
        # What begins another node sorts right before it.
        if at and len(parts[at - 1]) < len(part) and part.startswith(parts[at - 1]):
            return link(parent, parts[at - 1])
        return None

    def remove(self, key: bytes) -> None:
        """One group less has it."""
        node = self._nodes[key]
        if node.groups == self._groups:
            parts = self._children[node.parent]
            del parts[bisect_left(parts, node.part)]
            if not parts:
                del self._children[node.parent]
        node.groups -= 1
        if not node.groups:
            del self._nodes[key]

    def partial(self, parent: bytes, wanted: bytes) -> Partial | None:
        """The continuation of `parent` that shares most of its beginning with `wanted`."""
        parts = self._children.get(parent)
        if not parts or not wanted:
            return None
        at = bisect_left(parts, wanted)
        near = parts[max(0, at - 1) : at + 1]
        best = max(near, key=lambda part: _common(part, wanted))
        tokens = _common(best, wanted)
        return Partial(link(parent, best), tokens) if tokens else None


def _common(a: bytes, b: bytes) -> int:
    """Tokens that both begin with, found by halving."""
    low, high = 0, min(len(a), len(b)) // TOKEN_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        if a[: middle * TOKEN_BYTES] == b[: middle * TOKEN_BYTES]:
            low = middle
        else:
            high = middle - 1
    return low
