"""Sessions are tags: statistics, sharing, dropping, never a lock."""

from __future__ import annotations

from tests.engine.kv.toys import Clock, finish, idle, manager, run


def test_two_requests_on_one_id_run_at_once() -> None:
    kv = manager()
    one = run(kv, list(range(8)), "s")
    two = run(kv, list(range(50, 58)), "s")
    stats = kv.session(None, "s")
    assert stats is not None
    assert stats.running == 2
    kv.close(one)
    kv.close(two)
    assert finish(kv, [*range(8), 1], "s") == 8
    assert finish(kv, [*range(50, 58), 1], "s") == 8


def test_an_abort_leaves_what_the_session_had() -> None:
    kv = manager()
    finish(kv, list(range(12)), "s")
    for keep in (False, True):
        held = kv.open([*range(12), *range(70, 80)], tenant=None, session="s")
        assert held.cached == 12
        assert kv.grow(held, 22)
        kv.commit(held, [*range(12), *range(70, 80)], 17)
        kv.close(held, keep=keep)
        assert kv.open([*range(12), 1], tenant=None, session="s").cached == 12


def test_dropping_frees_what_nobody_else_has() -> None:
    kv = manager()
    finish(kv, [*range(8), *range(100, 108)], "a")
    finish(kv, [*range(8), *range(200, 208)], "b")
    assert kv.drop(None, "a") == 200
    assert kv.session(None, "a") is None
    assert kv.open([*range(8), *range(100, 108), 0], tenant=None, session=None).cached == 8
    assert kv.open([*range(8), *range(200, 208), 0], tenant=None, session=None).cached == 16


def test_dropping_spares_what_a_running_request_uses() -> None:
    kv = manager()
    finish(kv, list(range(8)), "a")
    held = kv.open([*range(8), 1], tenant=None, session="b")
    assert kv.drop(None, "a") == 0
    assert kv.grow(held, 9)
    kv.close(held)
    assert finish(kv, [*range(8), 1]) == 8


def test_a_request_of_a_dropped_session_leaves_nothing_behind() -> None:
    kv = manager()
    finish(kv, list(range(8)), "a")
    held = run(kv, list(range(14)), "a")
    assert kv.drop(None, "a") == 0
    assert kv.grow(held, 15)
    kv.commit(held, list(range(15)), 15)
    kv.close(held)
    assert kv.session(None, "a") is None
    assert kv.counts().cached_blocks == 0
    assert idle(kv)
    assert finish(kv, list(range(15)), "a") == 0


def test_a_foreign_tenant_sees_nothing() -> None:
    kv = manager()
    finish(kv, list(range(8)), "s", tenant="a")
    assert kv.session("b", "s") is None
    assert kv.session(None, "s") is None
    assert kv.sessions("b") == []
    assert kv.drop("b", "s") == 0
    assert [s.session_id for s in kv.sessions("a")] == ["s"]


def test_statistics() -> None:
    clock = Clock()
    kv = manager(clock=clock)
    finish(kv, list(range(10)), "s")
    kv.record(None, "s", cached=0, computed=10, generated=3)
    clock.now += 5
    cached = finish(kv, [*range(10), 1, 2], "s")
    kv.record(None, "s", cached=cached, computed=2)
    stats = kv.session(None, "s")
    assert stats is not None
    assert (stats.requests, stats.cached_tokens, stats.computed_tokens) == (2, 10, 12)
    assert stats.generated_tokens == 3
    assert stats.hit_rate == 10 / 22
    assert stats.last_use_unix_s - stats.created_unix_s == 5
    assert (stats.blocks_held, stats.bytes_held, stats.bytes_unique) == (3, 300, 300)
    finish(kv, [*range(8), 77], "t")
    stats = kv.session(None, "s")
    assert stats is not None
    assert (stats.bytes_held, stats.bytes_unique) == (300, 100)
    kv.drop(None, "t")
    stats = kv.session(None, "s")
    assert stats is not None
    assert stats.bytes_unique == 300


def test_no_rate_before_the_first_token() -> None:
    kv = manager()
    kv.close(kv.open([1, 2], tenant=None, session="s"))
    stats = kv.session(None, "s")
    assert stats is not None
    assert stats.hit_rate is None


def test_evicted_blocks_leave_the_statistics() -> None:
    kv = manager(blocks=4)
    finish(kv, list(range(8)), "a")
    finish(kv, list(range(50, 62)), "b")
    a, b = kv.session(None, "a"), kv.session(None, "b")
    assert a is not None
    assert b is not None
    assert (a.bytes_held, a.bytes_unique, b.bytes_held) == (0, 0, 300)


def test_only_so_many_sessions_are_remembered() -> None:
    kv = manager(max_sessions=3)
    running = run(kv, list(range(4)), "run")
    for i in range(5):
        finish(kv, list(range(100 * i, 100 * i + 4)), f"s{i}")
    assert {s.session_id for s in kv.sessions(None)} == {"run", "s3", "s4"}
    assert kv.open([0, 1, 2, 3, 9], tenant=None, session=None).cached == 4, "still cache"
    kv.close(running)


def test_nothing_grows_with_finished_requests() -> None:
    kv = manager(blocks=20, max_sessions=5)
    for i in range(500):
        finish(kv, [i, *range(i, i + 9)], f"s{i % 50}", tenant=f"t{i % 7}")
    assert len(kv.index) <= 19
    assert kv.counts().sessions == 5
    assert sum(len(s.blocks) for t in range(7) for s in kv._registry.of_tenant(f"t{t}")) <= 19
    assert idle(kv)
