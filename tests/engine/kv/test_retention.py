"""Which cached block goes first."""

from __future__ import annotations

import time

import pytest

from agentmem.engine.kv.retention import Retention, Shelf
from tests.engine.kv.toys import Clock, finish, idle, manager, run


def cached(kv, start: int) -> int:  # type: ignore[no-untyped-def]
    """Tokens of one filler still cached, not counted as a use of them."""
    found = kv.library.match(run_root(kv), [*range(start, start + 4), 0])
    return int(found[1])


def run_root(kv) -> bytes:  # type: ignore[no-untyped-def]
    held = kv.open([0], tenant=None, session=None, reuse=False)
    kv.close(held)
    return bytes(held.root)


def test_expired_without_session_then_expired_with_one_then_live() -> None:
    clock = Clock()
    kv = manager(blocks=5, clock=clock, retention=Retention(ttl_s=10))
    finish(kv, list(range(100, 104)), "a")
    finish(kv, list(range(200, 204)))
    clock.now += 20
    finish(kv, list(range(300, 304)))
    finish(kv, list(range(400, 404)), "b")
    gone = []
    for fill in range(4):
        held = run(kv, list(range(1000 + 4 * fill, 1004 + 4 * fill)))
        gone.append(next(s for s in (100, 200, 300, 400) if s not in gone and not cached(kv, s)))
        assert held
    assert gone == [200, 100, 300, 400]
    assert kv.counts().free_blocks == 0


def test_a_hit_renews_the_life_of_what_it_used() -> None:
    clock = Clock()
    kv = manager(blocks=3, clock=clock, retention=Retention(ttl_s=10))
    finish(kv, list(range(100, 104)))
    finish(kv, list(range(200, 204)))
    clock.now += 8
    kv.close(kv.open([*range(100, 104), 0], tenant=None, session=None))
    clock.now += 8
    finish(kv, list(range(300, 304)))
    assert cached(kv, 100) == 4
    assert cached(kv, 200) == 0


def test_retention_is_soft_and_never_takes_what_is_in_use() -> None:
    kv = manager(blocks=5)
    finish(kv, list(range(100, 108)), "a")
    held = run(kv, list(range(200, 208)), "b")
    other = kv.open(list(range(300, 312)), tenant=None, session=None)
    assert kv.grow(other, 8), "live cache gives way"
    assert not kv.grow(other, 9), "blocks in use do not"
    kv.close(held)
    kv.close(other)
    assert idle(kv)


def test_beyond_its_budget_a_session_goes_first() -> None:
    kv = manager(blocks=7, retention=Retention(budget_bytes=200))
    finish(kv, list(range(300, 308)))
    finish(kv, list(range(100, 116)), "a")
    stats = kv.session(None, "a")
    assert stats is not None
    assert (stats.blocks_held, stats.bytes_held) == (2, 200)
    finish(kv, list(range(400, 408)))
    # Its end is what it loses; the older filler without a session stays.
    assert kv.open([*range(100, 116), 0], tenant=None, session=None).cached == 8
    assert kv.open([*range(300, 308), 0], tenant=None, session=None).cached == 8


def test_limits_are_checked() -> None:
    with pytest.raises(ValueError, match="ttl_s"):
        Retention(ttl_s=3601)
    with pytest.raises(ValueError, match="budget"):
        Retention(budget_bytes=-1)


def test_giving_up_does_not_depend_on_how_much_is_kept() -> None:
    def cost(size: int) -> float:
        shelf = Shelf(10.0)
        for block in range(size):
            shelf.put(block, float(block % 7), tagged=block % 3 == 0)
        best = 1.0
        for _ in range(5):
            begin = time.thread_time()
            for _ in range(200):
                shelf.put(shelf.pop(100.0), 100.0, tagged=True)
            best = min(best, time.thread_time() - begin)
        return best

    assert cost(200_000) < 20 * cost(1_000) + 0.002
