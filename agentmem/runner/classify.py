"""Which phase the calls of a native answer belong to, and which phase each moment of it was in.

While a system answers in its own loop nobody can know what a call is for, so all are booked as
retrieval. Once the answer is there its adapter says what they were; time follows the calls.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentmem.memory import Called
from agentmem.records import Call, Phase, Stage

GENERATES = ("chat", "completion", "responses")
DEFAULT = "last successful chat call"
SAID = "said by the adapter"
UNNAMED = "named by nobody"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A call's final phase and why."""

    call: Call
    phase: Phase
    stage: Stage | None
    kind: str | None
    reason: str


def verdicts(calls: Sequence[Call], said: Sequence[Called]) -> list[Verdict]:
    """One per call, in order of arrival. A later entry of `said` wins over an earlier one."""
    ordered = sorted(calls, key=lambda c: c.start_s)
    final: dict[str, Verdict] = {c.call_id: _verdict(c, None, UNNAMED) for c in ordered}
    if said:
        for entry in said:
            chosen = chosen_by(entry, ordered)
            final |= {c.call_id: _verdict(c, entry, SAID) for c in chosen}
    else:
        answers = [c for c in ordered if c.endpoint in GENERATES and c.outcome == "ok"]
        last = _with_attempts(ordered, answers[-1:])
        final |= {c.call_id: _verdict(c, Called("generation"), DEFAULT) for c in last}
    return [final[c.call_id] for c in ordered]


def unmatched(calls: Sequence[Call], said: Iterable[Called]) -> list[Called]:
    """Entries that name no call."""
    ordered = sorted(calls, key=lambda c: c.start_s)
    return [entry for entry in said if not chosen_by(entry, ordered)]


def chosen_by(entry: Called, ordered: Sequence[Call]) -> list[Call]:
    """The calls an entry names, each with all attempts of its logical call."""
    if entry.call_id is not None:
        return _with_attempts(ordered, [c for c in ordered if c.call_id == entry.call_id])
    if entry.kind is not None:
        fitting = [c for c in ordered if c.kind == entry.kind]
    else:
        fitting = [c for c in ordered if c.endpoint in GENERATES]
    if entry.index is not None:
        logical = list(dict.fromkeys(c.logical_id for c in fitting))
        inside = -len(logical) <= entry.index < len(logical)
        wanted = logical[entry.index] if inside else None
        fitting = [c for c in fitting if c.logical_id == wanted]
    return _with_attempts(ordered, fitting)


def _with_attempts(ordered: Sequence[Call], chosen: Sequence[Call]) -> list[Call]:
    logical = {c.logical_id for c in chosen}
    return [c for c in ordered if c.logical_id in logical]


def _verdict(call: Call, entry: Called | None, reason: str) -> Verdict:
    """What `retrieval` means is known already; the other phases have a usual stage and kind."""
    if entry is None or entry.phase == "retrieval":
        becomes = entry.becomes if entry else None
        return Verdict(call, "retrieval", call.stage, becomes, reason)
    embeds = call.endpoint == "embedding"
    if entry.phase == "generation":
        kind = entry.becomes or ("answer" if call.kind == "unknown" else None)
        return Verdict(call, "generation", "generate", kind, reason)
    kind = entry.becomes or ("embed-write" if call.kind == "embed-query" else None)
    return Verdict(call, "construction", "store" if embeds else "construct", kind, reason)


@dataclass(frozen=True, slots=True)
class Tile:
    """A stretch of time in one phase."""

    phase: Phase
    start_s: float
    end_s: float


def tiles(start_s: float, end_s: float, found: Sequence[Verdict]) -> list[Tile]:
    """[start_s, end_s] cut into stretches without gap or overlap.

    While calls of several phases run, generation goes before retrieval before construction. With
    no call running it is retrieval, but generation once the last generating call is over.
    """
    spans = [(v.phase, v.call.start_s, v.call.start_s + v.call.latency_s) for v in found]
    edges = {start_s, end_s} | {t for _, a, b in spans for t in (a, b) if start_s < t < end_s}
    cut: list[Tile] = []
    for left, right in _pairs(sorted(edges)):
        phase = _phase_at((left + right) / 2, spans)
        if cut and cut[-1].phase == phase:
            cut[-1] = Tile(phase, cut[-1].start_s, right)
        else:
            cut.append(Tile(phase, left, right))
    return cut


def _pairs(edges: list[float]) -> Iterable[tuple[float, float]]:
    return itertools.pairwise(edges)


def _phase_at(at_s: float, spans: Sequence[tuple[Phase, float, float]]) -> Phase:
    running = {phase for phase, start, end in spans if start <= at_s < end}
    order: tuple[Phase, ...] = ("generation", "retrieval", "construction")
    for phase in order:
        if phase in running:
            return phase
    generated = any(phase == "generation" and end <= at_s for phase, _, end in spans)
    goes_on = any(phase != "construction" and start > at_s for phase, start, _ in spans)
    return "generation" if generated and not goes_on else "retrieval"
