"""Sessions, tenants and retention of cached states: the rules of keys and values."""

from __future__ import annotations

from agentmem.engine.kv.retention import Retention
from agentmem.engine.state.owners import joined
from agentmem.engine.state.store import StateStore
from tests.engine.state.toys import Clock, boundaries, current, make_store, recompute, step

TEXT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]


def run(
    store: StateStore,
    tokens: list[int],
    session: str | None = None,
    tenant: str | None = None,
    keep: bool = True,
) -> int:
    """One sequence, a checkpoint at each boundary; gives the tokens that were cached."""
    store.advance()
    hit = store.lookup(boundaries(tokens, tenant, 4), len(tokens) - 1, tenant)
    slot = store.open(tenant=tenant, session=session, hit=hit)
    assert slot is not None
    start = slot.current.computed
    for end in [*range(start // 4 * 4 + 4, len(tokens), 4), len(tokens)]:
        step(store, slot, tokens[:end], claim=[end] if end % 4 == 0 else [])
    assert current(store, slot) == recompute(tokens)
    store.close(slot, keep=keep)
    return start


def test_tenants_share_nothing() -> None:
    store = make_store()
    assert run(store, TEXT[:9], tenant="x") == 0
    assert run(store, TEXT[:9], tenant="y") == 0
    assert run(store, TEXT[:9]) == 0
    assert run(store, TEXT[:9], tenant="x") == 8
    store.advance()
    foreign = boundaries(TEXT[:9], "x", 4)
    assert store.lookup(foreign, 99, "x") is not None
    assert store.lookup(foreign, 99, "y") is None, "another tenant's hash is of no use"


def test_a_session_tells_what_it_has() -> None:
    store = make_store()
    run(store, TEXT[:9], session="s")
    run(store, TEXT[:9], session="t")
    run(store, [*TEXT[:8], 0, 0, 0, 0, 0], session="t")
    store.cache.owners.record(None, "s", 4, 5, 6)
    size = store.pages.stride_bytes
    s, t = store.session(None, "s"), store.session(None, "t")
    assert s is not None and t is not None
    assert (s.blocks_held, s.bytes_held, s.bytes_unique) == (2, 2 * size, size)
    assert (t.blocks_held, t.bytes_held, t.bytes_unique) == (2, 2 * size, size)
    assert (s.requests, s.cached_tokens, s.computed_tokens, s.generated_tokens) == (1, 4, 5, 6)
    assert {x.session_id for x in store.sessions(None)} == {"s", "t"}
    assert store.session("x", "s") is None and store.sessions("x") == []
    both = joined(s, t)
    assert both.bytes_held == 4 * size and both.session_id == "s" and both.requests == 1


def test_dropping_frees_what_nobody_else_has() -> None:
    store = make_store()
    run(store, TEXT[:9], session="s")
    run(store, TEXT[:9], session="t")
    size = store.pages.stride_bytes
    assert store.drop("x", "s") == 0
    assert store.drop(None, "s") == size, "the state that only s used"
    assert store.drop(None, "s") == 0 and store.session(None, "s") is None
    assert run(store, TEXT[:9]) == 8
    assert store.drop(None, "t") == size
    assert run(store, TEXT[:9], keep=False) == 0
    assert store.counts().cached_blocks == 0


def test_a_dropped_session_leaves_nothing_behind() -> None:
    store = make_store()
    slot = store.open(tenant=None, session="s")
    assert slot is not None
    step(store, slot, TEXT[:8], claim=[8])
    store.drop(None, "s")
    step(store, slot, TEXT[:12], claim=[12])
    store.close(slot)
    assert store.counts()[:3] == (0, 0, 39)
    assert store.session(None, "s") is None


def test_what_has_expired_goes_first() -> None:
    clock = Clock()
    store = make_store(blocks=7, clock=clock, retention=Retention(ttl_s=10))
    run(store, [1] * 5, session="old")
    clock.now += 11
    run(store, [2] * 5)
    run(store, [3] * 5, session="new")
    assert store.counts().cached_blocks == 3
    store.advance()

    def alive() -> list[int]:
        return [n for n in (1, 2, 3) if store.lookup(boundaries([n] * 4, None, 4), 4, None)]

    left = [alive()]
    for drafts in (3, 0, 0):
        filler = store.open(tenant=None, session=None)
        assert filler is not None and store.begin(filler, 0, 1 + drafts, drafts) is not None
        left.append(alive())
    assert left == [[1, 2, 3], [2, 3], [3], []]
    assert store.counts().evictions == 3


def test_a_budget_bounds_what_a_session_protects() -> None:
    size = make_store().pages.stride_bytes
    store = make_store(retention=Retention(budget_bytes=size))
    run(store, TEXT, session="s")
    stats = store.session(None, "s")
    assert stats is not None and stats.bytes_held == size


def test_too_many_sessions() -> None:
    store = make_store(max_sessions=2)
    for name in ("a", "b", "c"):
        run(store, TEXT[:9], session=name)
    assert {x.session_id for x in store.sessions(None)} == {"b", "c"}
