"""States of a session on their way out of a store and into another one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from agentmem.engine.state.store import StateStore
from agentmem.engine.state.versions import Claim, StateError


class Packed(NamedTuple):
    """A cached state, with the offset that it was recorded at."""

    claim: Claim
    page: bytes
    """The state's own bytes, without what pads its page."""


def packed(store: StateStore, tenant: str | None, session: str) -> Iterator[Packed]:
    """What a session has, the longest unused first. Belongs between steps."""
    with store.lock:
        cache = store.cache
        for block in cache.owners.blocks(tenant, session):
            key = cache.pool.keys[block]
            if key is not None:
                offset = cache.offset(key)
                page = store.pages.page(block)[: store.pages.natural_bytes]
                yield Packed(Claim(key, offset), page.numpy().tobytes())


def adopt(store: StateStore, state: Packed, tenant: str | None, session: str | None) -> bool:
    """Take a state in; it can be found once it is there as a whole, from the next step on.

    False without room. StateError, and nothing changed, when it has not this store's size.
    """
    if len(state.page) != store.pages.natural_bytes:
        raise StateError(f"{len(state.page)} bytes of a state that has {store.pages.natural_bytes}")
    with store.lock:
        cache = store.cache
        owner = None if session is None else cache.owners.enter(tenant, session, store.clock())
        try:
            if cache.pool.find(state.claim.key) is None:
                if not cache.pool.available:
                    return False
                (block,) = cache.take(1, tenant)
                try:
                    store.on_step("fill")
                    page = torch.frombuffer(bytearray(state.page), dtype=torch.uint8)
                    store.pages.page(block)[: len(page)] = page
                    store.on_step("publish")
                    cache.show(block, state.claim, tenant)
                finally:
                    cache.release([block])
            cache.tag(state.claim.key, owner)
            return True
        finally:
            if owner is not None:
                cache.owners.leave(owner, store.clock())
