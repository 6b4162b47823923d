"""The life of a sequence: begun, staged, committed, found again, rolled back."""

from __future__ import annotations

import dataclasses
from random import Random

import pytest

from agentmem.engine.state.columns import Columns
from agentmem.engine.state.readers import Reader
from agentmem.engine.state.versions import StateError
from tests.engine.state.toys import (
    Clock,
    boundaries,
    claims_of,
    current,
    forward,
    make_store,
    recompute,
    step,
)

TEXT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4]


def test_states_follow_the_tokens() -> None:
    store = make_store()
    slot = store.open(tenant=None, session=None)
    assert slot is not None
    step(store, slot, TEXT[:8], claim=[8])
    assert current(store, slot) == recompute(TEXT[:8])
    step(store, slot, [*TEXT[:9], 7, 7, 7], accepted=1, drafts=3)
    assert slot.current.computed == 9 and current(store, slot) == recompute(TEXT[:9])
    step(store, slot, [*TEXT[:12], 0], accepted=3, drafts=3, claim=[12])
    assert slot.current.computed == 12 and slot.current.accepted == 3
    assert current(store, slot) == recompute(TEXT[:12])
    step(store, slot, TEXT[:16], accepted=4, drafts=3, claim=[16])
    assert slot.current.accepted == 1, "all accepted at a boundary: brought together"
    assert current(store, slot) == recompute(TEXT[:16])
    store.close(slot)
    assert store.counts().cached_blocks == 3 and store.counts().used_blocks == 0


def test_a_plan_is_fixed() -> None:
    store = make_store()
    slot = store.open(tenant=None, session=None)
    assert slot is not None
    step(store, slot, TEXT[:5])
    plan = store.begin(slot, 5, 2, 1)
    assert plan is not None
    assert plan.source is slot.current and plan.computed == 5 and plan.column == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.column = 9  # type: ignore[misc]
    assert not set(plan.write) & set(plan.source.blocks.values())
    with pytest.raises(StateError, match="within a step"):
        store.begin(slot, 5, 1)
    store.abort(plan)
    for late in (store.abort, store.commit, lambda p: store.wrote(p, 0), store.load):
        with pytest.raises(StateError, match="over"):
            late(plan)


def test_counts_of_another_request_are_refused() -> None:
    """Repeated or dropped tokens once rows were permuted: counters that are not the slot's own."""
    store = make_store()
    first = store.open(tenant=None, session=None)
    second = store.open(tenant=None, session=None)
    assert first is not None and second is not None
    step(store, first, TEXT[:5])
    step(store, second, TEXT[:7])
    with pytest.raises(StateError, match="is at 5, not 7"):
        store.begin(first, 7, 1)
    plan = store.begin(second, 7, 1)
    assert plan is not None and plan.slot == second.number
    store.close(first)
    assert second.number == plan.slot, "a slot stays what it is when others end"


@pytest.mark.parametrize("missing", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_layers_disagree_on_the_state(missing: tuple[int, int]) -> None:
    """A step with one state of one layer not staged is not committed."""
    store = make_store()
    slot = store.open(tenant=None, session=None)
    assert slot is not None
    step(store, slot, TEXT[:5])
    before = current(store, slot), slot.current
    plan = store.begin(slot, 5, 1)
    assert plan is not None
    forward(store, plan, TEXT[5:6])
    slot.written -= {missing[0] * 2 + missing[1]}
    with pytest.raises(StateError, match="not staged"):
        store.commit(plan)
    assert (current(store, slot), slot.current) == before and slot.plan is None


@pytest.mark.parametrize("offset", [4, 7, 12, 6])
def test_a_claim_must_have_the_offset_of_the_state(offset: int) -> None:
    """Silent wrong output: a state in the middle of a block published as that of its boundary."""
    store = make_store()
    slot = store.open(tenant=None, session=None)
    assert slot is not None
    step(store, slot, TEXT[:5])
    plan = store.begin(slot, 5, 4, 3)
    assert plan is not None
    forward(store, plan, TEXT[5:9])
    # Ends at 8 with 3 accepted: states at 6 (no draft) and 8 (boundary).
    claims = claims_of(TEXT, None, [8, offset])
    if offset == 6:
        store.commit(plan, 3, claims)
        assert [store.lookup([c], 99, None) is not None for c in claims] == [True, True]
        return
    with pytest.raises(StateError, match="claimed"):
        store.commit(plan, 3, claims)
    assert store.lookup(claims, 99, None) is None and slot.current.computed == 5


def test_hash_over_rejected_drafts() -> None:
    """Leaked or repeated text with drafts: a boundary behind rejected drafts has no state."""
    store = make_store()
    slot = store.open(tenant=None, session=None)
    assert slot is not None
    step(store, slot, TEXT[:6])
    plan = store.begin(slot, 6, 4, 3)
    assert plan is not None
    forward(store, plan, [2, 0, 0, 0])
    with pytest.raises(StateError, match="8 tokens claimed"):
        store.commit(plan, 1, claims_of(TEXT, None, [8]))


def test_a_state_that_was_moved_over_is_not_claimed() -> None:
    """All accepted at a boundary: the state before the drafts is gone from the running column."""
    store = make_store()
    slot = store.open(tenant=None, session=None)
    assert slot is not None
    step(store, slot, TEXT[:5])
    plan = store.begin(slot, 5, 3, 2)
    assert plan is not None
    forward(store, plan, TEXT[5:8])
    with pytest.raises(StateError, match="6 tokens claimed"):
        store.commit(plan, 3, claims_of(TEXT, None, [6]))


def test_blocks_written_in_a_step_are_not_hit_in_it() -> None:
    store = make_store()
    slot = store.open(tenant=None, session=None)
    assert slot is not None
    step(store, slot, TEXT[:8], claim=[8])
    claims = boundaries(TEXT, None, 4)
    hit = store.lookup(claims, 19, None)
    assert hit is not None and hit.wait
    with pytest.raises(StateError, match="cannot be used"):
        store.open(tenant=None, session=None, hit=hit)
    store.advance()
    hit = store.lookup(claims, 19, None)
    assert hit is not None and not hit.wait and hit.claim.offset == 8


def test_the_same_prompt_twice() -> None:
    """B35, and the source of a hit stays as it was (B36)."""
    store = make_store()
    slot = store.open(tenant=None, session=None)
    assert slot is not None
    step(store, slot, TEXT[:4], claim=[4])
    step(store, slot, TEXT[:8], claim=[8])
    store.advance()
    hit = store.lookup(boundaries(TEXT[:8], None, 4), 7, None)
    assert hit is not None and hit.claim.offset == 4
    page = store.pages.page(hit.block).tolist()
    again = store.open(tenant=None, session=None, hit=hit)
    assert again is not None and again.current.computed == 4
    plan = step(store, again, TEXT[:8])
    assert hit.block not in plan.blocks
    assert store.pages.page(hit.block).tolist() == page
    assert current(store, again) == recompute(TEXT[:8]) == current(store, slot)


def test_a_conversation_goes_on_where_it_ended() -> None:
    """No cached tokens in growing turns: the end of a turn can be found, wherever it lies."""
    store = make_store()
    slot = store.open(tenant=None, session="s")
    assert slot is not None
    step(store, slot, TEXT[:4], claim=[4])
    step(store, slot, [*TEXT[:7], 0], drafts=3, accepted=3)
    assert slot.current.accepted == 3 and slot.current.computed == 7
    (end,) = claims_of(TEXT, None, [7])
    with pytest.raises(StateError, match="ended at 7"):
        store.close(slot, end._replace(offset=8))
    store.close(slot, end)
    store.advance()
    hit = store.lookup([*boundaries(TEXT, None, 4), end], 19, None)
    assert hit is not None and hit.claim == end
    again = store.open(tenant=None, session="s", hit=hit)
    assert again is not None and current(store, again) == recompute(TEXT[:7])
    step(store, again, TEXT[:8], claim=[8])
    step(store, again, TEXT[:20], claim=[20])
    assert current(store, again) == recompute(TEXT[:20])


def test_offset_lost_for_a_step_without_drafts() -> None:
    """B22: three drafts accepted, then a step with none: it begins at the accepted offset."""
    store = make_store()
    slot = store.open(tenant=None, session=None)
    assert slot is not None
    step(store, slot, TEXT[:5])
    step(store, slot, TEXT[:9], drafts=3, accepted=4, claim=[8])
    assert slot.current.accepted == 4
    step(store, slot, TEXT[:10])
    assert slot.current.accepted == 1
    assert current(store, slot) == recompute(TEXT[:10])


def test_placeholders_behind_a_prompt_are_not_kept() -> None:
    """B23, the wrong state on a decode node: one real token and three that stand for drafts."""
    store = make_store()
    slot = store.open(tenant=None, session=None)
    assert slot is not None
    step(store, slot, TEXT[:6])
    step(store, slot, [*TEXT[:7], 0, 0, 0], drafts=3, accepted=1)
    assert current(store, slot) == recompute(TEXT[:7])


def test_a_chunk_shorter_than_the_window() -> None:
    """A shared prefix overwritten, NaN in its tail: the initial state is never written to."""
    store = make_store()
    slot = store.open(tenant=None, session=None)
    assert slot is not None
    step(store, slot, TEXT[:4], claim=[4])
    store.advance()
    hit = store.lookup(boundaries(TEXT, None, 4), 19, None)
    assert hit is not None
    page = store.pages.page(hit.block).tolist()
    for tail in (5, 6):
        other = store.open(tenant=None, session=None, hit=hit)
        assert other is not None
        for length in range(5, tail + 5):
            step(store, other, TEXT[:length])
            assert current(store, other) == recompute(TEXT[:length])
    assert store.pages.page(hit.block).tolist() == page


def test_accepted_starts_anew_with_a_chunk() -> None:
    """Garbage of chunked prompts with drafts: a chunk samples nothing and counts as 1."""
    store = make_store()
    slot = store.open(tenant=None, session=None)
    assert slot is not None
    step(store, slot, TEXT[:5])
    step(store, slot, TEXT[:8], drafts=2, accepted=3)
    step(store, slot, TEXT[:15])
    assert slot.current.accepted == 1 and current(store, slot) == recompute(TEXT[:15])


def test_preempted_and_resumed() -> None:
    """B20: nothing of the first life is left, whatever number the slot gets."""
    store = make_store()
    slot = store.open(tenant=None, session=None)
    assert slot is not None
    step(store, slot, TEXT[:12], claim=[12])
    step(store, slot, TEXT[:15], drafts=2, accepted=3)
    store.close(slot)
    with pytest.raises(StateError, match="closed"):
        store.begin(slot, 15, 1)
    store.advance()
    hit = store.lookup(boundaries(TEXT, None, 4), 14, None)
    again = store.open(tenant=None, session=None, hit=hit)
    assert again is not None and again.number == slot.number
    assert (again.current.computed, again.current.column, again.current.accepted) == (12, 2, 1)
    fresh = store.open(tenant=None, session=None)
    assert fresh is not None and fresh.current.column == -1 and not fresh.current.blocks


def test_a_pass_that_works_in_place() -> None:
    """`load` brings the source into the running column; what it reads stays."""
    store = make_store()
    slot = store.open(tenant=None, session=None)
    assert slot is not None
    plan = store.begin(slot, 0, 5)
    assert plan is not None and plan.fresh and store.load(plan) == 0
    forward(store, plan, TEXT[:5])
    store.commit(plan)
    step(store, slot, TEXT[:8], drafts=2, accepted=2)
    page = {b: store.pages.page(b).tolist() for b in slot.current.blocks.values()}
    plan = store.begin(slot, 7, 1)
    assert plan is not None
    moved = store.load(plan)
    assert 0 < moved <= store.pages.state_bytes
    views = store.pages.layer_views(0)
    window, state = recompute(TEXT[:7])[0]
    assert views[0].data[plan.write[0]].flatten()[:3].tolist() == window
    assert views[1].data[plan.write[0]][0] == state
    assert {b: store.pages.page(b).tolist() for b in page} == page
    assert slot.counts.copied_bytes == moved == store.counts().copied_bytes


# --- versions


def test_rollback_to_any_retained_version() -> None:
    store = make_store(retain=3)
    slot = store.open(tenant=None, session=None)
    assert slot is not None
    ends = [5, 6, 8, 9, 13]
    for end in ends:
        drafts = end - slot.current.computed - 1 if slot.current.computed else 0
        step(store, slot, TEXT[:end], drafts=min(3, drafts), accepted=1 + min(3, drafts))
    assert [v.computed for v in slot.versions] == [8, 9, 13]
    used = store.counts().used_blocks
    target = slot.versions[0]
    store.rollback(slot, target.number)
    assert slot.current is target and current(store, slot) == recompute(TEXT[:8])
    assert store.counts().used_blocks < used
    with pytest.raises(StateError, match="not retained"):
        store.rollback(slot, target.number + 1)
    other = [*TEXT[:8], 0, 0]
    step(store, slot, other)
    assert current(store, slot) == recompute(other)
    store.close(slot)
    assert store.counts().used_blocks == 0


def test_a_pinned_reader_keeps_its_version() -> None:
    store = make_store(blocks=14)
    slot = store.open(tenant=None, session=None)
    assert slot is not None
    step(store, slot, TEXT[:5])
    step(store, slot, TEXT[:7], drafts=1, accepted=2)
    with Reader(store, slot) as reader:
        want = recompute(TEXT[:7])
        for end in range(8, 20):
            step(store, slot, TEXT[:end])
        store.close(slot)
        other = store.open(tenant=None, session=None)
        assert other is not None
        step(store, other, TEXT[5:17], drafts=3, accepted=1)
        for layer in range(2):
            states = dict(
                zip(("window", "state"), reader.layer(layer)[:: 1 - 2 * layer], strict=True)
            )
            assert states["window"].flatten().tolist() == want[layer][0]
            assert states["state"][0] == want[layer][1]
        assert store.counts().readers == 1
    with pytest.raises(StateError):
        reader.layer(0)
    reader.close()
    store.close(other)
    assert store.counts()[:3] == (0, 0, 13)
    with pytest.raises(StateError):
        Reader(store, slot)


def test_forks_go_their_own_ways() -> None:
    store = make_store()
    slot = store.open(tenant="x", session="s")
    assert slot is not None
    step(store, slot, TEXT[:7])
    twin = store.fork(slot)
    assert twin is not None and twin.number != slot.number
    step(store, slot, TEXT[:10])
    step(store, twin, [*TEXT[:7], 0])
    assert current(store, slot) == recompute(TEXT[:10])
    assert current(store, twin) == recompute([*TEXT[:7], 0])
    store.close(slot)
    store.close(twin)
    assert store.counts().used_blocks == 0


# --- room


def test_no_more_is_held_than_the_columns_say() -> None:
    """Held blocks between steps are at most those of the aligned cache; no gap stops a release."""
    store = make_store(blocks=60)
    slot = store.open(tenant=None, session=None)
    assert slot is not None
    columns, text = Columns(4, 3), TEXT * 20
    plan = [(0, 20, 0, 1), (0, 16, 0, 1)] + [(3, 4, 3, a) for a in (1, 4, 2, 3, 1, 4, 4, 1)] * 5
    for _, scheduled, drafts, accepted in plan:
        at = slot.current.computed
        columns.advance(at, scheduled)
        chunk = text[: at + scheduled]
        boundary = (at + scheduled - drafts + accepted - 1) // 4 * 4
        claim = [boundary] if boundary >= at + scheduled - drafts else []
        step(store, slot, chunk, drafts=drafts, accepted=accepted, claim=claim)
        assert store.counts().used_blocks <= len(columns.held)
    store.close(slot)
    assert store.counts().used_blocks == 0


def test_without_room_nothing_changes() -> None:
    store = make_store(blocks=4, retain=2)
    slot = store.open(tenant=None, session=None)
    assert slot is not None
    step(store, slot, TEXT[:5])
    with Reader(store, slot):
        assert store.begin(slot, 5, 4, 3) is None
        assert slot.plan is None and current(store, slot) == recompute(TEXT[:5])
        step(store, slot, TEXT[:6])
        step(store, slot, TEXT[:7])
        assert len(slot.versions) == 2
    assert current(store, slot) == recompute(TEXT[:7])


def test_requeued_forever_near_the_ceiling() -> None:
    """A sequence alone gets on with the least number of blocks, whatever was cached before."""
    store = make_store(blocks=make_store().least_blocks, retain=4)
    dice = Random(1)
    slot = store.open(tenant=None, session=None)
    assert slot is not None
    text = TEXT * 20
    while slot.current.computed < 300:
        at, drafts = slot.current.computed, dice.randint(0, 3)
        accepted = dice.randint(1, drafts + 1)
        end = at + accepted
        claim = [end // 4 * 4] if end // 4 * 4 > at else []
        step(store, slot, text[: at + 1 + drafts], accepted, drafts, claim)
    assert current(store, slot) == recompute(text[: slot.current.computed])
    assert store.counts().evictions


def test_older_versions_and_scratch_make_room() -> None:
    store = make_store(blocks=8, retain=3)
    slot = store.open(tenant=None, session=None)
    other = store.open(tenant=None, session=None)
    assert slot is not None and other is not None
    for end in (5, 6, 7):
        step(store, slot, TEXT[:end])
    assert len(slot.versions) == 3
    step(store, other, TEXT[:5])
    plan = store.begin(other, 5, 4, 3)
    assert plan is not None and len(slot.versions) < 3
    store.abort(plan)
    assert current(store, slot) == recompute(TEXT[:7])
    assert current(store, other) == recompute(TEXT[:5])


def test_slots_run_out() -> None:
    store = make_store(slots=1)
    slot = store.open(tenant=None, session="s")
    assert slot is not None
    assert store.open(tenant=None, session="t") is None
    assert store.session(None, "t") is None
    store.close(slot)
    store.close(slot)
    assert store.open(tenant=None, session=None) is not None


def test_bytes_of_the_previous_tenant() -> None:
    """Blocks handed out unzeroed: what one tenant wrote, no other finds."""
    store = make_store(blocks=8)
    slot = store.open(tenant="x", session=None)
    assert slot is not None
    step(store, slot, TEXT[:8], drafts=3, accepted=2)
    blocks = set(range(1, 8)) - set(store.cache.pool._free)
    store.close(slot)
    other = store.open(tenant="y", session=None)
    assert other is not None
    plan = store.begin(other, 0, 5, 3)
    assert plan is not None and set(plan.blocks) & blocks
    assert not any(store.pages.page(b).any() for b in plan.blocks)


def test_misuse_is_refused() -> None:
    store = make_store()
    slot = store.open(tenant=None, session=None)
    assert slot is not None
    for scheduled, drafts in ((0, 0), (2, 2), (9, 4), (1, -1)):
        with pytest.raises(StateError, match="drafts"):
            store.begin(slot, 0, scheduled, drafts)
    plan = store.begin(slot, 0, 3, 1)
    assert plan is not None
    forward(store, plan, TEXT[:3])
    with pytest.raises(StateError, match="3 accepted"):
        store.commit(plan, 3)
    with pytest.raises(StateError):
        store.rollback(slot, 10**9)


def test_clock_is_the_callers() -> None:
    clock = Clock()
    store = make_store(clock=clock)
    slot = store.open(tenant=None, session="s")
    assert slot is not None
    clock.now += 5
    store.close(slot)
    stats = store.session(None, "s")
    assert stats is not None and round(stats.last_use_unix_s - stats.created_unix_s) == 5
