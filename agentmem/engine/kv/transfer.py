"""Moving or copying one session's state between engines.

A copy is a file that anybody may read, any number of times. A move is an offer that one engine
claims; who owns the session at which moment is settled in `ownership`. An import checks the
file, then takes blocks, then claims, then fills and publishes: until the claim nothing but
free blocks has changed, and a kill after it costs the new owner a recomputation, not the session.
Export and import belong to the engine's thread, between steps; `moved` may be asked from any.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from agentmem.engine.kv import chain, sessionfile
from agentmem.engine.kv.adoption import Adoption, Node
from agentmem.engine.kv.layout import KVPages
from agentmem.engine.kv.manager import KVManager
from agentmem.engine.kv.ownership import Ledger, Step, claim, claim_path, no_step, sync_folder
from agentmem.engine.kv.registry import Session
from agentmem.engine.kv.sessionfile import Header, Stamp
from agentmem.errors import DataError


@dataclass(frozen=True, slots=True)
class Transferred:
    """One export or import."""

    session_id: str
    blocks: int
    tokens: int
    size_bytes: int
    epoch: int
    """Of the owner: the present one after an export, the new one after an import."""
    moved: bool


class Transfers:
    """The sessions of one engine on their way out and in."""

    def __init__(
        self,
        kv: KVManager,
        pages: Sequence[KVPages],
        stamp: Stamp,
        ledger: Ledger | None = None,
        step: Step = no_step,
    ) -> None:
        self._kv = kv
        self._pages = pages
        self._stamp = stamp
        self._step = step
        self.ledger = ledger or Ledger()

    def moved(self, tenant: str | None, session_id: str | None) -> bool:
        """Whether another engine owns the session now; what is cached of it here then goes."""
        if session_id is None or not self.ledger.moved(tenant, session_id):
            return False
        self._kv.drop(tenant, session_id)
        return True

    def export(
        self, path: Path, *, tenant: str | None, session_id: str, move: bool = False
    ) -> Transferred:
        """Write a session's file; DataError when it is unknown, has moved, or the file exists."""
        if path.exists() or claim_path(path).exists():
            raise DataError(f"{path}: exists already")
        if self.moved(tenant, session_id):
            raise DataError(f"session {session_id!r} has moved to another engine")
        if not path.parent.is_dir():
            raise DataError(f"{path.parent}: no such folder")
        with self._kv.lock:
            session = self._kv.known(tenant, session_id)
            if session is None:
                raise DataError(f"session {session_id!r} is not known")
            # The offer comes first: it may withdraw an older one, and it states the epoch.
            epoch = self.ledger.epoch(tenant, session_id)
            if move:
                epoch = self.ledger.offer(tenant, session_id, path, self._step)
            header, blocks = self._pack(session, chain.root(self._kv.identity, tenant), epoch, move)
            temp = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
            try:
                with temp.open("xb") as out:
                    size = sessionfile.write(out, header, self._contents(blocks), self._step)
                self._step("offer")
                # A link, unlike a rename, never takes the place of another file.
                os.link(temp, path)
                self._step("offered")
            except FileExistsError as error:
                raise DataError(f"{path}: exists already") from error
            finally:
                with suppress(FileNotFoundError):
                    temp.unlink()
            sync_folder(path.parent)
        count = sum(len(group) for group in blocks)
        return Transferred(session_id, count, header.tokens, size, epoch, move)

    def import_(
        self, path: Path, *, tenant: str | None, session_id: str | None = None
    ) -> Transferred:
        """Take in a session's file under its own or another id.

        DataError with every reason, and nothing changed, when the file does not fit this engine,
        is damaged, was claimed by another or finds no room.
        """
        try:
            file = path.open("rb")
        except OSError as error:
            raise DataError(f"{path}: {error.strerror}") from error
        with file:
            header = self._checked(file, path)
            name = session_id or header.session_id
            if not header.move and self.moved(tenant, name):
                raise DataError(f"session {name!r} has moved to another engine")
            nodes = [Node(*node) for node in header.nodes]
            adoption = Adoption(self._kv, tenant, nodes, header.present)
            try:
                epoch = header.epoch
                if header.move:
                    mine = self.ledger.want(tenant, name, path, epoch, self._step)
                    claim(path, mine, self._step)
                    epoch = mine.epoch
                self._step("fill")
                size = self._fill(file, header, adoption)
                self._step("publish")
                adoption.publish(tenant, name)
            finally:
                adoption.abandon()
        self._count(tenant, name, header)
        count = sum(len(group) for group in header.present)
        return Transferred(name, count, header.tokens, size, epoch, header.move)

    # --- out

    def _pack(
        self, session: Session, root: bytes, epoch: int, move: bool
    ) -> tuple[Header, list[list[int]]]:
        """The header of a session and, per group, its blocks in the header's order."""
        kv = self._kv
        order: dict[bytes, int] = {}
        nodes: list[tuple[int, tuple[int, ...]]] = []
        for group, block in session.blocks:
            key = kv.pools[group].keys[block]
            for step in self._path(key, root) if key is not None else ():
                if step not in order:
                    node = kv.index.node(step)
                    assert node is not None
                    order[step] = len(nodes)
                    nodes.append((order.get(node.parent, -1), chain.decode(node.part)))
        found = [
            [(at, held) for key, at in order.items() if (held := pool.find(key)) is not None]
            for pool in kv.pools
        ]
        header = Header(
            self._stamp,
            session.session_id,
            epoch,
            move,
            tuple(nodes),
            tuple(tuple(at for at, _ in group) for group in found),
            (
                session.requests,
                session.cached_tokens,
                session.computed_tokens,
                session.generated_tokens,
            ),
        )
        return header, [[block for _, block in group] for group in found]

    def _path(self, key: bytes, root: bytes) -> list[bytes]:
        """Keys from the beginning of the sequence to this one; empty where a link is missing."""
        path: list[bytes] = []
        needed = [group.pool for group in self._kv.groups if group.contiguous]
        while key != root:
            node = self._kv.index.node(key)
            if node is None or any(pool.find(key) is None for pool in needed):
                return []
            path.append(key)
            key = node.parent
        return path[::-1]

    def _contents(self, blocks: list[list[int]]) -> Iterator[bytes]:
        for pages, group in zip(self._pages, blocks, strict=True):
            for block in group:
                yield sessionfile.page_bytes(pages, block)

    # --- in

    def _checked(self, file: BinaryIO, path: Path) -> Header:
        """The header of a file that fits this engine and is whole."""
        header = sessionfile.read_header(file, path)
        reasons = sessionfile.differences(header.stamp, self._stamp)
        if reasons:
            raise DataError(f"{path}: from another engine: " + "; ".join(reasons))
        sessionfile.check_shape(header, path)
        sessionfile.check_digest(file, path)
        sessionfile.read_header(file, path)
        pages = zip(self._pages, header.present, strict=True)
        size = file.tell() + sum(p.block_bytes * len(nodes) for p, nodes in pages)
        if size + sessionfile.DIGEST_BYTES != os.fstat(file.fileno()).st_size:
            raise DataError(f"{path}: damaged (its pages are not as many as it says)")
        return header

    def _fill(self, file: BinaryIO, header: Header, adoption: Adoption) -> int:
        """Read the pages of fresh blocks, skip the others; gives the bytes of all."""
        total = 0
        for pages, nodes, fresh in zip(self._pages, header.present, adoption.fresh, strict=True):
            blocks = {taken.node: taken.block for taken in fresh}
            for node in nodes:
                content = file.read(pages.block_bytes)
                total += len(content)
                if node in blocks:
                    sessionfile.put_page(pages, blocks[node], content)
        return total

    def _count(self, tenant: str | None, session_id: str, header: Header) -> None:
        """Carry the session's counts on, where this engine has none of its own."""
        with self._kv.lock:
            session = self._kv.known(tenant, session_id)
            if session is not None and not session.requests:
                session.requests, session.cached_tokens = header.counts[:2]
                session.computed_tokens, session.generated_tokens = header.counts[2:]
