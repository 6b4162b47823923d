"""A recurrent model of whole numbers: any two ways to the same state agree exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from agentmem.engine.kv import chain
from agentmem.engine.state.layout import LayerStates, StateKind, StatePages
from agentmem.engine.state.store import StateStore
from agentmem.engine.state.versions import Claim, Plan, StateSlot

TAPS = 4
DRAFTS = 3
LAYERS = 2
PRIME = 1_000_003
Layer = tuple[list[int], int]
"""The last TAPS - 1 inputs, and the recurrent state."""


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def kinds(swapped: bool = False, tokens_first: bool = True) -> tuple[StateKind, ...]:
    width = TAPS - 1 + DRAFTS
    shape = (width, 1) if tokens_first else (1, width)
    pair = (
        StateKind("window", shape, torch.int64, 0 if tokens_first else 1),
        StateKind("state", (2,), torch.int64),
    )
    return pair[::-1] if swapped else pair


def make_store(blocks: int = 40, block: int = 4, **more: Any) -> StateStore:
    """Layers of one family but different layouts."""
    layers = [LayerStates(i, kinds(i % 2 == 1, i % 2 == 0)) for i in range(LAYERS)]
    more.setdefault("clock", Clock())
    return StateStore(StatePages(layers, blocks), block=block, drafts=DRAFTS, **more)


def advance(layers: list[Layer], token: int) -> list[Layer]:
    """One token through all layers."""
    x, after = token + 1, []
    for number, (window, state) in enumerate(layers):
        mixed = sum((i + 2 + number) * old for i, old in enumerate(window)) + x
        state = (5 * state + mixed + 1) % PRIME
        after.append(([*window[1:], x], state))
        x = (state + 3 * x) % PRIME
    return after


def start() -> list[Layer]:
    return [([0] * (TAPS - 1), 0) for _ in range(LAYERS)]


def recompute(tokens: Sequence[int]) -> list[Layer]:
    """The states after some tokens, from the beginning."""
    layers = start()
    for token in tokens:
        layers = advance(layers, token)
    return layers


def read(store: StateStore, window: int, state: int, offset: int) -> list[Layer]:
    """The states of blocks, the window from `offset` on."""
    found: list[Layer] = []
    for layer in range(LAYERS):
        views = {v.kind.name: v.data for v in store.pages.layer_views(layer)}
        row = views["window"][window].flatten().tolist()
        pair = views["state"][state].tolist()
        assert pair[1] == -pair[0]
        found.append((row[offset : offset + TAPS - 1], pair[0]))
    return found


def current(store: StateStore, slot: StateSlot) -> list[Layer]:
    version = slot.current
    if version.window_block is None or version.state_block is None:
        return start()
    return read(store, version.window_block, version.state_block, version.offset)


def forward(store: StateStore, plan: Plan, tokens: Sequence[int]) -> None:
    """Run a step as a kernel would: read the source, write the staged blocks."""
    source = plan.source
    if source.window_block is None or source.state_block is None:
        layers = start()
    else:
        layers = read(store, source.window_block, source.state_block, source.offset)
    assert len(tokens) == plan.scheduled
    real = plan.scheduled - plan.drafts
    rows: list[list[int]] = []
    for at, token in enumerate(tokens):
        layers = advance(layers, token)
        if at == real - 1:
            rows = [list(window) for window, _ in layers]
        elif at >= real:
            for row, (window, _) in zip(rows, layers, strict=True):
                row.append(window[-1])
        if at >= real - 1:
            block = plan.write[at - real + 1]
            for layer, (_, state) in enumerate(layers):
                _view(store, layer, "state")[block] = torch.tensor([state, -state])
    for layer, row in enumerate(rows):
        view = _view(store, layer, "window")
        padded = [*row, *[-9] * (TAPS - 1 + DRAFTS - len(row))]
        view[plan.write[0]] = torch.tensor(padded).view(view.shape[1:])
        store.wrote(plan, layer)


def _view(store: StateStore, layer: int, name: str) -> torch.Tensor:
    (found,) = [v for v in store.pages.layer_views(layer) if v.kind.name == name]
    return found.data


def claims_of(tokens: Sequence[int], tenant: str | None, offsets: Sequence[int]) -> list[Claim]:
    """What hashes of the sequence say at some offsets."""
    root = chain.root(b"toy", tenant)
    return [Claim(chain.link(root, chain.encode(tokens[:n])), n) for n in offsets if n]


def boundaries(tokens: Sequence[int], tenant: str | None, block: int) -> list[Claim]:
    return claims_of(tokens, tenant, range(block, len(tokens) + 1, block))


def step(
    store: StateStore,
    slot: StateSlot,
    tokens: Sequence[int],
    accepted: int = 1,
    drafts: int = 0,
    claim: Sequence[int] = (),
) -> Plan:
    """Compute up to the end of `tokens` (drafts at the end of them), commit."""
    at = slot.current.computed
    plan = store.begin(slot, at, len(tokens) - at, drafts)
    assert plan is not None
    forward(store, plan, tokens[at:])
    store.commit(plan, accepted, claims_of(tokens, slot.tenant, claim))
    return plan


def snapshot(store: StateStore) -> Any:
    """All that a transaction may change, contents of committed and cached blocks among it."""
    slots = {}
    for number, slot in store._slots.items():
        content = [[store.pages.page(b).tolist() for b in v.blocks.values()] for v in slot.versions]
        plan = None if slot.plan is None else slot.plan.number
        slots[number] = (slot.versions, content, set(slot.spare), plan, tuple(slot.published))
    pool = store.cache.pool
    cached = {key: store.pages.page(b).tolist() for b, key in enumerate(pool.keys) if key}
    sessions = [
        (s.session_id, dict(s.blocks), s.bytes_held, s.bytes_unique, s.running)
        for tenant in (None, "x")
        for s in store.cache.owners._registry.of_tenant(tenant)
    ]
    shown = dict(store.cache._shown)
    return slots, cached, shown, list(pool.refs), pool.counts, set(pool._free), sessions
