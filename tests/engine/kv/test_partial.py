"""Half-filled blocks: reuse by copy, forks, and who may write where."""

from __future__ import annotations

from tests.engine.kv.toys import finish, idle, manager, run


def test_a_prompt_that_leaves_a_cached_block_midway_copies_it() -> None:
    kv = manager()
    first = run(kv, list(range(8)))
    kept = list(kv.table(first, 0))
    kv.close(first)
    second = kv.open([0, 1, 2, 3, 4, 5, 99, 98, 97], tenant=None, session=None)
    assert second.cached == 6
    assert kv.table(second, 0) == kept
    assert kv.grow(second, 9)
    assert [c[:2] for c in second.copies] == [(0, kept[1])]
    assert second.copies[0].dst == kv.table(second, 0)[1] != kept[1]
    assert kv.pools[0].refs[kept[1]] == 1, "the source stays pinned until the copy is done"
    kv.commit(second, [0, 1, 2, 3, 4, 5, 99, 98, 97], 9)
    assert not second.copies
    kv.close(second)
    assert kv.open(list(range(9)), tenant=None, session=None).cached == 8


def test_a_finished_sequence_is_continued_midway() -> None:
    kv = manager()
    finish(kv, list(range(6)))
    assert finish(kv, list(range(11))) == 6
    assert idle(kv)
    assert kv.counts().cached_blocks == 3, "the end that was continued is not kept twice"


def test_an_end_that_a_cached_block_covers_is_not_kept() -> None:
    kv = manager()
    finish(kv, list(range(8)))
    finish(kv, list(range(6)))
    assert kv.counts().cached_blocks == 2
    assert idle(kv)


def test_the_continuation_that_shares_most_is_chosen() -> None:
    kv = manager()
    for end in ([1, 9], [1, 2, 9], [1, 2, 3], [2]):
        finish(kv, [0, 0, 0, 0, *end])
    assert kv.open([0, 0, 0, 0, 1, 2, 3, 4], tenant=None, session=None).cached == 7
    assert kv.open([0, 0, 0, 0, 1, 2, 9, 4], tenant=None, session=None).cached == 7
    assert kv.open([0, 0, 0, 0, 1, 8, 9, 4], tenant=None, session=None).cached == 5
    assert kv.open([0, 0, 0, 0, 3, 8, 9, 4], tenant=None, session=None).cached == 4


def test_a_copy_needs_room() -> None:
    kv = manager(blocks=3)
    finish(kv, list(range(8)))
    held = kv.open([0, 1, 2, 3, 4, 5, 99], tenant=None, session=None)
    before = list(kv.table(held, 0))
    assert not kv.grow(held, 7)
    assert kv.table(held, 0) == before
    assert not held.copies
    kv.close(held)
    assert idle(kv)


def test_closing_before_the_copy_is_done_lets_the_source_go() -> None:
    kv = manager()
    finish(kv, list(range(8)))
    held = kv.open([0, 1, 2, 3, 4, 5, 99], tenant=None, session=None)
    assert kv.grow(held, 7)
    kv.close(held)
    assert idle(kv)
    assert kv.open(list(range(9)), tenant=None, session=None).cached == 8


def test_forks_share_until_one_writes() -> None:
    kv = manager()
    one = run(kv, list(range(6)))
    two = kv.fork(one)
    assert kv.table(two, 0) == kv.table(one, 0)
    assert kv.table(two, 0) is not kv.table(one, 0)
    shared = kv.table(one, 0)[1]
    assert kv.grow(two, 7)
    assert [(c.src, c.dst) for c in two.copies] == [(shared, kv.table(two, 0)[1])]
    kv.commit(two, [*range(6), 70], 7)
    assert kv.grow(one, 7)
    assert not one.copies, "the last one writes in place"
    kv.commit(one, [*range(6), 71], 7)
    kv.close(one)
    kv.close(two)
    assert idle(kv)
    assert kv.open([*range(6), 70, 0], tenant=None, session=None).cached == 7
    assert kv.open([*range(6), 71, 0], tenant=None, session=None).cached == 7


def test_a_fork_does_not_share_what_is_not_yet_valid() -> None:
    kv = manager()
    one = run(kv, list(range(4)))
    assert kv.grow(one, 8)
    two = kv.fork(one)
    assert len(kv.table(two, 0)) == 1
    kv.close(one)
    kv.close(two)
    assert idle(kv)


def test_a_rewound_copy_lets_its_source_go() -> None:
    kv = manager()
    finish(kv, list(range(8)))
    held = kv.open([0, 1, 2, 3, 4, 5, 99], tenant=None, session=None)
    assert kv.grow(held, 7)
    kv.rewind(held, 4)
    assert not held.copies
    assert kv.pools[0].refs.count(1) == 1
    kv.close(held)
    assert idle(kv)


def test_a_copy_that_was_never_done_is_not_kept_as_an_end() -> None:
    kv = manager()
    finish(kv, list(range(6)))
    held = kv.open([*range(6), 99], tenant=None, session=None)
    assert kv.grow(held, 7)
    kv.pools[0].forget(held.copies[0].src)
    kv.close(held)
    assert kv.open([*range(6), 99], tenant=None, session=None).cached == 4
