"""Sliding windows: what is given back, and which hits a window allows."""

from __future__ import annotations

import pytest

from agentmem.engine.kv import chain
from agentmem.engine.kv.layout import NULL_BLOCK
from agentmem.engine.kv.manager import KVManager
from tests.engine.kv.toys import finish, idle, manager, run


def lose(kv: KVManager, tokens: list[int], group: int, at: int) -> None:
    """Evict one cached block, if it is cached and unused."""
    key = chain.root(kv.identity, None)
    for start in range(0, 4 * at + 4, 4):
        key = chain.link(key, chain.encode(tokens[start : start + 4]))
    block = kv.pools[group].find(key)
    if block is not None and not kv.pools[group].refs[block]:
        kv.pools[group].forget(block)


def hit(kv: KVManager, tokens: list[int]) -> int:
    held = kv.open([*tokens, 99], tenant=None, session=None)
    kv.close(held)
    return held.cached


def test_blocks_behind_the_window_are_given_back_while_running() -> None:
    kv = manager(None, 6)
    tokens = list(range(40))
    held = run(kv, tokens, chunk=4)
    assert kv.grow(held, 41)
    # Position 40 sees 35..40: blocks 8 to 10.
    assert kv.table(held, 1)[:8] == [NULL_BLOCK] * 8
    assert NULL_BLOCK not in kv.table(held, 1)[8:]
    assert NULL_BLOCK not in kv.table(held, 0)
    assert kv.pool_counts(1).used == 3
    assert kv.pool_counts(1).cached == 8, "they stay as cache"
    kv.close(held)
    assert idle(kv)


def test_a_sequence_longer_than_the_pool_runs_in_a_window() -> None:
    kv = manager(6, blocks=5)
    assert finish(kv, list(range(100)), chunk=4) == 0
    assert idle(kv)


def test_a_hit_needs_only_the_blocks_inside_the_window() -> None:
    kv = manager(None, 6)
    tokens = list(range(24))
    finish(kv, tokens, chunk=4)
    for at in range(4):
        lose(kv, tokens, 1, at)
    again = kv.open([*tokens, 99], tenant=None, session=None)
    assert again.cached == 24
    # Position 24 sees 19..24.
    assert kv.table(again, 1)[:4] == [NULL_BLOCK] * 4
    assert NULL_BLOCK not in kv.table(again, 1)[4:]


def test_a_hole_in_the_window_moves_the_hit_before_it() -> None:
    kv = manager(None, 6)
    tokens = list(range(24))
    finish(kv, tokens, chunk=4)
    lose(kv, tokens, 1, 4)
    assert kv.open([*tokens, 99], tenant=None, session=None).cached == 16


def test_all_groups_agree_on_the_hit() -> None:
    kv = manager(None, 6, 9)
    tokens = list(range(40))
    finish(kv, tokens, chunk=4)
    lose(kv, tokens, 2, 8)
    assert hit(kv, tokens) == 32
    lose(kv, tokens, 1, 7)
    assert hit(kv, tokens) == 28
    lose(kv, tokens, 0, 3)
    assert hit(kv, tokens) == 12


def test_an_end_is_continued_where_its_last_full_block_is_not() -> None:
    kv = manager(None, 3)
    tokens = list(range(22))
    finish(kv, tokens, chunk=4)
    # Position 20 sees 18..20, block 4 among them; position 22 sees 20..22, block 5 only.
    lose(kv, tokens, 1, 4)
    assert hit(kv, tokens) == 22
    assert hit(kv, tokens[:20]) == 16


def test_a_window_of_one_needs_nothing() -> None:
    kv = manager(None, 1)
    finish(kv, list(range(12)), chunk=4)
    again = kv.open([*range(12), 99], tenant=None, session=None)
    assert again.cached == 12
    assert kv.table(again, 1) == [NULL_BLOCK] * 3


def test_windows_only() -> None:
    kv = manager(5)
    finish(kv, list(range(21)), chunk=4)
    again = kv.open([*range(21), 99], tenant=None, session=None)
    assert again.cached == 21
    kv.close(again)
    assert idle(kv)


def test_nothing_is_rewound_to_where_the_window_has_moved_on() -> None:
    kv = manager(None, 3, blocks=5)
    held = run(kv, list(range(6)))
    assert not kv.grow(held, 20), "no room, but what nobody sees is given back"
    with pytest.raises(ValueError, match="rewind"):
        kv.rewind(held, 5)
    kv.close(held)
    again = kv.open(list(range(7)), tenant=None, session=None)
    assert again.cached == 6
    with pytest.raises(ValueError, match="rewind"):
        kv.rewind(again, 5)
