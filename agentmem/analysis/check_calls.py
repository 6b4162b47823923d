"""Rules on calls: attempts (R1), unknowns (R2, R3), truth (R4), clock (R5), indexing (R9)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from agentmem.analysis.load import Run
from agentmem.analysis.settle import of_type
from agentmem.analysis.verdict import Examine, Found
from agentmem.records import Call, CallBegin, Query, Reattribution, Window

SLACK_S = 1e-3
"""Clock readings of two threads may be this far apart."""
WRITING = {"construct", "store", "ingest"}


def attempts(run: Run) -> Found:
    """R1: one row per attempt, attempts numbered without a gap, every begin and end paired."""
    calls, begins = of_type(run.journal, Call), of_type(run.journal, CallBegin)
    faults = [f"call {i} has {n} rows" for i, n in _repeated(c.call_id for c in calls)]
    faults += [f"call {i} began {n} times" for i, n in _repeated(b.call_id for b in begins)]
    faults += [f"call {i} ended without a begin" for i in _difference(calls, begins)]
    faults += _served_twice(calls)
    groups: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        groups[call.logical_id].append(call)
    for logical, group in groups.items():
        faults += _attempt_faults(logical, group)
    return Found(tuple(faults), f"{len(calls)} attempts of {len(groups)} logical calls")


def _served_twice(calls: list[Call]) -> list[str]:
    ids = (c.engine["request_id"] for c in calls if c.engine and c.engine.get("request_id"))
    return [f"engine request {i} is booked {n} times" for i, n in _repeated(ids)]


def _attempt_faults(logical: str, group: list[Call]) -> Iterator[str]:
    if sorted(c.attempt for c in group) != list(range(len(group))):
        yield f"logical call {logical} has attempts {sorted(c.attempt for c in group)}"
    if len({c.scope for c in group}) > 1:
        yield f"logical call {logical} spans several scopes"
    if len({c.request_hash for c in group}) > 1:
        yield f"logical call {logical} has attempts with different bodies"


def _repeated(ids: object) -> list[tuple[str, int]]:
    return [(i, n) for i, n in Counter(ids).items() if n > 1]  # type: ignore[call-overload]


def _difference(calls: list[Call], begins: list[CallBegin]) -> list[str]:
    begun = {b.call_id for b in begins}
    return [c.call_id for c in calls if c.call_id not in begun]


def unknowns(run: Run) -> Found:
    """R2: no count of 0 where text was sent or returned, and unknown tokens are counted."""
    calls = [c for c in of_type(run.journal, Call) if c.endpoint != "other"]
    faults = []
    for call in calls:
        if call.input_tokens == 0 and (call.own_input_tokens or call.outcome != "ok"):
            faults.append(f"call {call.call_id}: 0 input tokens for a request with text")
        if call.output_tokens == 0 and call.own_output_tokens:
            faults.append(f"call {call.call_id}: 0 output tokens for a reply with text")
    silent = sum(c.input_tokens is None for c in calls)
    return Found(tuple(faults), f"{silent} of {len(calls)} attempts report no usage")


def buckets(run: Run) -> Found:
    """R3: input = uncached + cache_read + cache_write wherever all are known."""
    faults, summed = [], 0
    for call in of_type(run.journal, Call):
        parts = (call.uncached_tokens, call.cache_read_tokens, call.cache_write_tokens)
        known = [p for p in parts if p is not None]
        if any(p < 0 for p in known):
            faults.append(f"call {call.call_id}: a token count below 0")
        if call.input_tokens is None or not known:
            continue
        summed += len(known) == len(parts)
        total, whole = sum(known), len(known) == len(parts)
        if total > call.input_tokens or (whole and total != call.input_tokens):
            faults.append(f"call {call.call_id}: {total} in parts, input {call.input_tokens}")
    detail = f"parts add up to the input in {summed} attempts"
    return Found(tuple(faults), detail, provable=summed > 0)


def truth(run: Run) -> Found:
    """R4: the server's usage agrees with the engine's own record; our count stands beside it."""
    faults, compared, differ, both = [], 0, 0, 0
    for call in of_type(run.journal, Call):
        for name, usage, engine in _pairs(call):
            compared += 1
            if usage != engine:
                faults.append(f"call {call.call_id}: {name} {usage}, the engine says {engine}")
        if call.own_output_tokens is not None and call.output_tokens is not None:
            both += 1
            differ += call.own_output_tokens != call.output_tokens
    told = f"{compared} figures agree with the engine" if compared else "no engine record"
    detail = f"{told}; our own output count differs in {differ} of {both}"
    return Found(tuple(faults), detail, provable=compared > 0)


def _pairs(call: Call) -> Iterator[tuple[str, int, int]]:
    engine = call.engine or {}
    cached, uncached = engine.get("cached_tokens"), engine.get("uncached_tokens")
    if call.input_tokens is not None and cached is not None and uncached is not None:
        yield "input tokens", call.input_tokens, cached + uncached
    if call.output_tokens is not None and engine.get("generated_tokens") is not None:
        yield "output tokens", call.output_tokens, engine["generated_tokens"]


def clock(run: Run) -> Found:
    """R5: no duration below zero, no first token without a token, no overlap inside a scope."""
    faults: list[str] = []
    begins = {b.call_id: b for b in of_type(run.journal, CallBegin)}
    calls, windows = of_type(run.journal, Call), of_type(run.journal, Window)
    for call in calls:
        faults += _call_clock(call, begins.get(call.call_id))
    for window in windows:
        length = window.end_s - window.start_s
        if not -SLACK_S <= window.quiet_s <= length + SLACK_S:
            faults.append(f"window of {window.scope} {window.unit}: quiet longer than the window")
    faults += _overlaps(run, windows)
    return Found(tuple(faults), f"{len(calls)} attempts and {len(windows)} windows")


def _call_clock(call: Call, begin: CallBegin | None) -> Iterator[str]:
    if call.latency_s < 0:
        yield f"call {call.call_id}: latency below 0"
    if call.ttft_s is not None and not 0 <= call.ttft_s <= call.latency_s + SLACK_S:
        yield f"call {call.call_id}: first token outside its latency"
    if call.ttft_s is not None and call.output_tokens == 0:
        yield f"call {call.call_id}: time to first token without a token"
    if begin is not None and abs(begin.start_s - call.start_s) > SLACK_S:
        yield f"call {call.call_id}: begin and end rows disagree on its start"


def _overlaps(run: Run, windows: list[Window]) -> Iterator[str]:
    """Windows of one scope that cover the same time would count it twice."""
    reach: dict[str, Window] = {}
    for window in sorted(windows, key=lambda w: (w.start_s, w.end_s)):
        last = reach.get(window.scope)
        allowed = _may_overlap(run, window.system)
        if last is not None and window.start_s < last.end_s - SLACK_S and not allowed:
            yield f"windows of {window.scope} overlap: {last.unit} and {window.unit}"
        if last is None or window.end_s > last.end_s:
            reach[window.scope] = window


def _may_overlap(run: Run, system: str) -> bool:
    """Whether this run asked the system questions while it constructed."""
    lane = (run.manifest.get("lanes") or {}).get(system)
    if lane is not None:
        return bool(lane["overlap"])
    return bool((run.manifest.get("systems", {}).get(system) or {}).get("overlap", False))


def indexing(run: Run) -> Found:
    """R9: no index building inside a question; nothing retrieved where nothing was stored."""
    moves = {m.call_id: m for m in of_type(run.journal, Reattribution)}
    faults = []
    for call in of_type(run.journal, Call):
        move = moves.get(call.call_id)
        phase = move.phase if move else call.phase
        stage = (move.stage if move else None) or call.stage
        if phase in ("retrieval", "generation") and (
            call.kind == "embed-write" or stage in WRITING
        ):
            faults.append(f"call {call.call_id}: {call.kind} booked under {phase}")
    blind = [q for q in of_type(run.journal, Query) if q.system == "no_memory"]
    faults += [
        f"no_memory retrieved something for {q.question_id}" for q in blind if q.retrieved_texts
    ]
    return Found(tuple(faults), "no writing call under retrieval or generation")


RULES: dict[str, tuple[str, Examine]] = {
    "R1": ("one row per attempt", attempts),
    "R2": ("unknown is never 0", unknowns),
    "R3": ("input tokens in disjoint parts", buckets),
    "R4": ("the server's usage is the truth", truth),
    "R5": ("one clock", clock),
    "R9": ("indexing is construction", indexing),
}
