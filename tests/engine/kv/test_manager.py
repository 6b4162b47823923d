"""Prefix hits, growth and publication, on groups that keep all positions."""

from __future__ import annotations

import pytest

from tests.engine.kv.toys import finish, idle, manager, run


def test_a_second_request_hits_all_full_blocks_whatever_its_session() -> None:
    kv = manager()
    first = run(kv, list(range(9)), "a")
    second = kv.open(list(range(9)), tenant=None, session="b")
    assert second.cached == 8
    assert second.keys == first.keys
    assert kv.table(second, 0) == kv.table(first, 0)[:2]
    kv.close(first)
    kv.close(second)
    assert idle(kv)


def test_at_least_one_token_is_computed() -> None:
    kv = manager()
    finish(kv, list(range(8)))
    again = kv.open(list(range(8)), tenant=None, session=None)
    assert again.cached == 7


def test_tenants_never_share() -> None:
    kv = manager()
    finish(kv, list(range(9)), tenant="a")
    assert kv.open(list(range(9)), tenant="b", session=None).cached == 0
    assert kv.open(list(range(9)), tenant=None, session=None).cached == 0
    assert kv.open(list(range(9)), tenant="a", session=None).cached == 8


def test_models_never_share() -> None:
    one, other = manager(), manager()
    other.identity = b"other"
    assert run(one, list(range(8))).keys != run(other, list(range(8))).keys


def test_blocks_show_after_commit_only() -> None:
    kv = manager()
    tokens = list(range(9))
    first = kv.open(tokens, tenant=None, session=None)
    assert kv.grow(first, 9)
    assert kv.open(tokens, tenant=None, session=None).cached == 0
    kv.commit(first, tokens, 6)
    assert kv.open(tokens, tenant=None, session=None).cached == 4


def test_reuse_off_still_keeps_what_is_computed() -> None:
    kv = manager()
    assert finish(kv, list(range(9)), reuse=False) == 0
    assert finish(kv, list(range(9)), reuse=False) == 0
    assert finish(kv, list(range(9))) == 8
    assert idle(kv)


def test_no_room_changes_nothing() -> None:
    kv = manager(blocks=4)
    holding = run(kv, list(range(8)))
    before = list(kv.table(holding, 0))
    assert not kv.grow(holding, 13)
    assert kv.table(holding, 0) == before
    assert kv.grow(holding, 12)
    kv.close(holding)
    assert idle(kv)


def test_the_null_block_is_never_handed_out() -> None:
    kv = manager(blocks=5)
    holding = run(kv, list(range(16)))
    assert sorted(kv.table(holding, 0)) == [1, 2, 3, 4]


def test_slots_are_block_times_size_plus_offset() -> None:
    kv = manager()
    holding = run(kv, list(range(6)))
    a, b = kv.table(holding, 0)
    assert kv.slots(holding, 0, 2, 6) == [a * 4 + 2, a * 4 + 3, b * 4, b * 4 + 1]


def test_rewind_gives_blocks_back_and_stops_at_what_is_published() -> None:
    kv = manager()
    tokens = list(range(6))
    holding = run(kv, tokens)
    assert kv.grow(holding, 14)
    kv.rewind(holding, 5)
    assert len(kv.table(holding, 0)) == 2
    with pytest.raises(ValueError, match="rewind"):
        kv.rewind(holding, 3)
    assert kv.grow(holding, 7)
    kv.commit(holding, [0, 1, 2, 3, 4, 55, 66], 7)
    kv.close(holding)
    assert kv.open([0, 1, 2, 3, 4, 55, 66, 7], tenant=None, session=None).cached == 7
    assert kv.open([0, 1, 2, 3, 4, 5, 6, 7], tenant=None, session=None).cached == 5


def test_commit_never_goes_beyond_what_was_grown() -> None:
    kv = manager()
    holding = kv.open(list(range(6)), tenant=None, session=None)
    with pytest.raises(ValueError, match="commit"):
        kv.commit(holding, list(range(6)), 6)


def test_closing_twice_is_closing_once() -> None:
    kv = manager()
    holding = run(kv, list(range(9)))
    kv.close(holding)
    kv.close(holding)
    assert idle(kv)
    assert kv.counts().cached_blocks == 3


def test_without_keep_only_its_own_blocks_go() -> None:
    kv = manager()
    finish(kv, list(range(8)))
    held = run(kv, list(range(16)))
    kv.close(held, keep=False)
    assert kv.counts().cached_blocks == 2
    assert kv.open(list(range(17)), tenant=None, session=None).cached == 8


def test_the_least_recently_used_end_is_evicted_first() -> None:
    kv = manager(blocks=7)
    finish(kv, list(range(12)))
    finish(kv, list(range(100, 112)))
    finish(kv, list(range(200, 204)))
    assert kv.counts().evictions == 1
    assert kv.open(list(range(13)), tenant=None, session=None).cached == 8
    assert kv.open(list(range(100, 113)), tenant=None, session=None).cached == 12


def test_counts_add_up() -> None:
    kv = manager(blocks=11)
    held = run(kv, list(range(10)))
    counts = kv.counts()
    assert (counts.used_blocks, counts.cached_blocks, counts.free_blocks) == (3, 0, 7)
    assert counts.used_bytes == 300
    kv.close(held)
    finish(kv, list(range(10)))
    counts = kv.counts()
    assert (counts.queried_tokens, counts.hit_tokens) == (20, 9)
