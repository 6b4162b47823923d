"""States that come from another store."""

from __future__ import annotations

import pytest

from agentmem.engine.state.moving import adopt, packed
from agentmem.engine.state.versions import Claim, StateError
from tests.engine.state.toys import boundaries, current, make_store, recompute, snapshot, step

TEXT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]


def test_a_session_goes_on_elsewhere() -> None:
    store, there = make_store(), make_store()
    slot = store.open(tenant="x", session="s")
    assert slot is not None
    step(store, slot, TEXT[:4], claim=[4])
    step(store, slot, TEXT[:8], claim=[8])
    store.close(slot)
    found = list(packed(store, "x", "s"))
    assert sorted(p.claim.offset for p in found) == [4, 8]
    assert list(packed(store, "y", "s")) == [] == list(packed(store, "x", "t"))
    for state in [*found, found[0]]:
        assert adopt(there, state, "x", "moved")
    claims = boundaries(TEXT, "x", 4)
    hit = there.lookup(claims, 9, "x")
    assert hit is not None and hit.wait, "from the next step on"
    there.advance()
    assert there.lookup(claims, 9, None) is None
    hit = there.lookup(claims, 9, "x")
    assert hit is not None and hit.claim.offset == 8
    again = there.open(tenant="x", session="moved", hit=hit)
    assert again is not None
    step(there, again, TEXT)
    assert current(there, again) == recompute(TEXT)
    stats = there.session("x", "moved")
    assert stats is not None and stats.blocks_held == 2 and stats.running == 1


class Boom(BaseException):
    pass


@pytest.mark.parametrize("where", ["take", "fill", "publish"])
def test_no_half_state_is_taken_in(where: str) -> None:
    store = make_store()
    slot = store.open(tenant=None, session="s")
    assert slot is not None
    step(store, slot, TEXT[:4], claim=[4])
    (state,) = packed(store, None, "s")

    def fail(name: str) -> None:
        if name == where:
            raise Boom

    there = make_store(on_step=fail)
    before = snapshot(there)
    with pytest.raises(Boom):
        adopt(there, state, None, None)
    assert snapshot(there) == before and there.lookup([state.claim], 9, None) is None
    with pytest.raises(StateError, match="bytes of a state"):
        adopt(there, state._replace(page=state.page[:-1]), None, None)


def test_no_room() -> None:
    store = make_store(blocks=2)
    slot = store.open(tenant=None, session="s")
    assert slot is not None
    step(store, slot, TEXT[:4], claim=[4])
    (state,) = packed(store, None, "s")
    assert not adopt(store, state._replace(claim=Claim(b"other", 4)), None, None)
