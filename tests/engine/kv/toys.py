"""Small managers, and a sequence that runs on one as an engine would."""

from __future__ import annotations

from agentmem.engine.kv.layout import GroupSpec
from agentmem.engine.kv.manager import KVManager
from agentmem.engine.kv.retention import Retention
from agentmem.engine.kv.tables import Holding


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def specs(*windows: int | None) -> tuple[GroupSpec, ...]:
    return tuple(GroupSpec((i,), 1, 8, window) for i, window in enumerate(windows))


def manager(
    *windows: int | None,
    blocks: int = 32,
    size: int = 4,
    retention: Retention | None = None,
    clock: Clock | None = None,
    max_sessions: int = 100,
) -> KVManager:
    """Every block has 100 bytes."""
    groups = specs(*(windows or (None,)))
    return KVManager(
        groups,
        blocks=blocks,
        block_size=size,
        identity=b"model",
        retention=retention,
        block_bytes=[100] * len(groups),
        clock=clock or Clock(),
        max_sessions=max_sessions,
    )


def run(
    kv: KVManager,
    tokens: list[int],
    session: str | None = None,
    tenant: str | None = None,
    chunk: int = 1000,
    reuse: bool = True,
) -> Holding:
    """Open and compute all of `tokens`; still open."""
    holding = kv.open(tokens, tenant=tenant, session=session, reuse=reuse)
    while holding.length < len(tokens):
        stop = min(len(tokens), holding.length + chunk)
        assert kv.grow(holding, stop)
        kv.commit(holding, tokens, stop)
    return holding


def finish(kv: KVManager, tokens: list[int], session: str | None = None, **more: object) -> int:
    """The same, closed; gives the cached tokens."""
    holding = run(kv, tokens, session, **more)  # type: ignore[arg-type]
    kv.close(holding)
    return holding.cached


def idle(kv: KVManager) -> bool:
    """Nothing in use, and every block accounted for."""
    return all(
        pool.counts.used == 0 and pool.counts.cached + pool.counts.free == len(pool.refs) - 1
        for pool in kv.pools
    )
