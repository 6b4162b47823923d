"""An exception between any two things that a transaction does leaves everything as before."""

from __future__ import annotations

import pytest

from agentmem.engine.state.store import StateStore
from agentmem.engine.state.versions import StateSlot
from tests.engine.state.toys import (
    boundaries,
    claims_of,
    current,
    forward,
    make_store,
    recompute,
    snapshot,
    step,
)

TEXT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]


class Boom(BaseException):
    """Not even an Exception: a kill, a keyboard interrupt."""


class Fuse:
    """Counts what a transaction does and fails before the `at`-th of it."""

    def __init__(self) -> None:
        self.at: int | None = None
        self.seen: list[str] = []

    def __call__(self, name: str) -> None:
        self.seen.append(name)
        if self.at is not None and len(self.seen) > self.at:
            raise Boom(name)


def ready(tenant: str | None = "x") -> tuple[StateStore, StateSlot, Fuse]:
    """Two sequences of two tenants and what they cached; one of them about to go on."""
    fuse = Fuse()
    store = make_store(blocks=12, on_step=fuse, retain=2)
    first = store.open(tenant=None, session="s")
    assert first is not None
    step(store, first, TEXT[:8], claim=[8])
    step(store, first, [*TEXT[:9], 1, 2, 3], drafts=3, accepted=1)
    store.close(first)
    slot = store.open(tenant=tenant, session="t")
    assert slot is not None
    step(store, slot, TEXT[:4], claim=[4])
    step(store, slot, [*TEXT[:6], 0, 0], drafts=2, accepted=1)
    assert slot.spare
    fuse.seen.clear()
    return store, slot, fuse


def transaction(
    store: StateStore, slot: StateSlot, accepted: int, drafts: int, ends: list[int]
) -> None:
    """A step that crosses the boundary at 8."""
    plan = store.begin(slot, 6, 1 + drafts, drafts)
    assert plan is not None
    store.load(plan)
    forward(store, plan, TEXT[6 : 7 + drafts])
    store.commit(plan, accepted, claims_of(TEXT, slot.tenant, ends))


CASES: dict[str, tuple[int, int, list[int]]] = {
    "plain": (1, 0, [7]),
    "boundary between drafts": (3, 3, [7, 8]),
    "all accepted at a boundary": (2, 1, [8]),
    "rejected": (1, 3, [7]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_failed_step_changes_nothing(name: str) -> None:
    accepted, drafts, ends = CASES[name]
    store, slot, fuse = ready()
    transaction(store, slot, accepted, drafts, ends)
    whole = list(fuse.seen)
    assert {"copy", "commit", "hash", "publish"} <= set(whole) and whole[-1] == "committed"
    assert ("take" in whole) == (drafts > 1), "the slot's own scratch comes first"
    for at in range(len(whole)):
        store, slot, fuse = ready()
        before = snapshot(store)
        fuse.at = at
        with pytest.raises(Boom):
            transaction(store, slot, accepted, drafts, ends)
        fuse.at = None
        if whole[at] == "committed":
            assert slot.plan is None and slot.current.computed == 6 + accepted
        else:
            if slot.plan is not None:  # the pass itself failed: whoever ran it aborts
                store.abort(slot.plan)
            assert snapshot(store) == before, (at, whole[at])
            assert current(store, slot) == recompute(TEXT[:6])
            store.advance()
            assert store.lookup(claims_of(TEXT, slot.tenant, ends), 99, slot.tenant) is None
            transaction(store, slot, accepted, drafts, ends)
        assert current(store, slot) == recompute(TEXT[: 6 + accepted])
        store.close(slot)
        assert store.counts().used_blocks == 0


@pytest.mark.parametrize("at", range(20))
def test_a_sequence_that_fails_to_end_goes_on_or_ends(at: int) -> None:
    store, slot, fuse = ready()
    step(store, slot, TEXT[:10], drafts=2, accepted=2)
    (end,) = claims_of(TEXT, slot.tenant, [slot.current.computed])
    before = snapshot(store)
    fuse.seen.clear()
    fuse.at = at
    try:
        store.close(slot, end)
    except Boom:
        assert snapshot(store) == before
        fuse.at = None
        store.close(slot, end)
    else:
        assert at >= 5
    store.advance()
    hit = store.lookup([end], 99, slot.tenant)
    assert hit is not None
    again = store.open(tenant="x", session=None, hit=hit)
    assert again is not None and current(store, again) == recompute(TEXT[: end.offset])


def test_stale_state_after_an_aborted_load() -> None:
    """A slot is published last: what a load or a pass wrote before it failed is never found."""
    store, slot, fuse = ready()
    plan = store.begin(slot, 6, 2)
    assert plan is not None
    fuse.at = len(fuse.seen) + 2
    with pytest.raises(Boom):
        store.load(plan)
    fuse.at = None
    store.abort(plan)
    store.advance()
    hit = store.lookup(boundaries(TEXT, "x", 4), 99, "x")
    assert hit is not None and hit.claim.offset == 4
    step(store, slot, TEXT[:8], claim=[8])
    assert current(store, slot) == recompute(TEXT[:8])


def test_a_refused_claim_takes_the_others_back() -> None:
    store, slot, _ = ready()
    before = snapshot(store)
    plan = store.begin(slot, 6, 4, 3)
    assert plan is not None
    forward(store, plan, TEXT[6:10])
    with pytest.raises(Exception, match="9 tokens claimed"):
        store.commit(plan, 3, claims_of(TEXT, "x", [8, 7, 9]))
    assert snapshot(store) == before
