"""Rules on a whole run: energy (R6), late calls (R7), whole (R8), prompts (R10), sums (R11)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import pandas as pd

from agentmem.analysis.conserve import conservation, unattributed, unattributed_line
from agentmem.analysis.energy import MEASURED
from agentmem.analysis.load import Run
from agentmem.analysis.settle import of_type
from agentmem.analysis.verdict import Examine, Found
from agentmem.records import Call, CallBegin, Failure, Reattribution, Window

SLACK_S = 1e-3


def energy(run: Run) -> Found:
    """R6: joules only with a counter behind them, and one source and scope per system."""
    faults = []
    sources: dict[str, set[tuple[str, str | None]]] = defaultdict(set)
    for window in of_type(run.journal, Window):
        place = f"window of {window.scope} {window.unit}"
        sources[window.system].add((window.energy_source, window.energy_scope))
        if window.energy_j is not None and window.energy_source not in MEASURED:
            faults.append(f"{place}: {window.energy_j} J without a counter")
        if window.energy_j is not None and window.energy_j < 0:
            faults.append(f"{place}: energy below 0")
    mixed = [s for s, found in sources.items() if len({f for f in found if f[0] in MEASURED}) > 1]
    faults += [f"{system}: joules from several sources" for system in mixed]
    kinds = sorted(set(run.phases["energy_source"])) if len(run.phases) else []
    return Found(tuple(faults), f"source of the energy figures: {', '.join(kinds) or 'none'}")


def late(run: Run) -> Found:
    """R7: nothing unattributed."""
    line = unattributed_line(run.phases)
    return Found((line,) if unattributed(run.phases)["attempts"] else (), line)


def complete(run: Run) -> Found:
    """R8: every unit and question exactly once or listed as failed; an unfinished run owes some."""
    faults: list[str] = []
    missing: list[str] = []
    if not run.manifest.get("identity"):
        faults.append("the manifest has no identity")
    for system in run.manifest.get("order") or []:
        missing += _system_gaps(run, str(system))
    over = run.manifest["status"] == "complete"
    faults += missing if over else []
    for table, column in ((run.units, "unit"), (run.queries, "question_id")):
        keys = Counter(zip(table["scope"], table[column], strict=True))
        faults += [
            f"{scope} {item} is on record {n} times" for (scope, item), n in keys.items() if n > 1
        ]
    faults += _unlisted(run)
    looked_at = f"{len(run.units)} units, {len(run.queries)} questions, each once"
    if missing:
        looked_at += f"; the run is not over: {'; '.join(missing)}"
    return Found(tuple(faults), looked_at, provable=over or not missing)


def _system_gaps(run: Run, system: str) -> Iterator[str]:
    """Units and questions that are missing, in every repeat. What was stored is no matter of rows:
    `validity.completeness` says it."""
    rounds = (run.manifest.get("profile") or {}).get("run", {}).get("repeats") or 1
    for history, size in (run.manifest.get("workload") or {}).get("histories", {}).items():
        for table, what in ((run.units, "units"), (run.queries, "questions")):
            mine = _of(table, system)
            mine = mine[mine["history"] == history]
            for repeat in range(rounds):
                found = int((mine["repeat"] == repeat).sum())
                if found != size[what]:
                    turn = f", repeat {repeat}" if rounds > 1 else ""
                    yield f"{system}, {history}{turn}: {found} of {size[what]} {what}"


def _of(table: pd.DataFrame, system: str) -> pd.DataFrame:
    return table[table["system"] == system]


def _unlisted(run: Run) -> Iterator[str]:
    """Failed units and questions that no Failure row explains."""
    listed = {(f.scope, f.unit) for f in of_type(run.journal, Failure)}
    for table, column in ((run.units, "unit"), (run.queries, "question_id")):
        for row in table[table["status"] != "ok"].to_dict("records"):
            if (row["scope"], row[column]) not in listed:
                yield f"{row['scope']} {row[column]} failed and no failure is listed"


def prompts(run: Run) -> Found:
    """R10: seeds are fixed where the profile says so; equal prompts take two runs to show."""
    calls = (run.manifest.get("profile") or {}).get("calls") or {}
    fixed = calls.get("sampling") == "fixed"
    chats = [c for c in of_type(run.journal, Call) if c.endpoint in ("chat", "completion")]
    faults = [f"call {c.call_id} has no seed" for c in chats if fixed and c.seed is None]
    return Found(
        tuple(faults),
        f"{len({c.request_hash for c in chats})} distinct prompts; equality takes a second run",
        provable=False,
    )


def sums(run: Run) -> Found:
    """R11: phases add up to the journal, and each call lies in a window of its own phase."""
    lines = conservation(run.phases, run.journal)
    faults = [str(line) for line in lines if not line.holds]
    faults += _moved(run)
    faults += _homeless(run)
    return Found(tuple(faults), "; ".join(f"{x.quantity} {x.total:,}" for x in lines))


def _moved(run: Run) -> Iterator[str]:
    """Calls that ended in another phase than they began in, with no Reattribution."""
    begins = {b.call_id: b for b in of_type(run.journal, CallBegin)}
    for call in of_type(run.journal, Call):
        begin = begins.get(call.call_id)
        if begin and (begin.phase, begin.bucket) != (call.phase, call.bucket):
            yield f"call {call.call_id} began in {begin.phase} and ended in {call.phase}"
    known = {c.call_id for c in of_type(run.journal, Call)} | set(begins)
    for move in of_type(run.journal, Reattribution):
        if move.call_id not in known:
            yield f"a reattribution names an unknown call {move.call_id}"


def _homeless(run: Run) -> Iterator[str]:
    """Calls whose final phase had no window of their scope open at their start.

    A reattributed call may have begun while another of its operation had the clock: it is at home
    in any window of its unit, as long as the unit has one of the call's final phase.
    """
    spans: dict[tuple[str, str | None, str], list[tuple[float, float]]] = defaultdict(list)
    wholes: dict[tuple[str, str, str | None], list[tuple[float, float]]] = defaultdict(list)
    phases: dict[tuple[str, str, str | None], set[str | None]] = defaultdict(set)
    for w in of_type(run.journal, Window):
        span = (w.start_s - SLACK_S, w.end_s + SLACK_S)
        spans[(w.scope, w.phase, w.bucket)].append(span)
        wholes[(w.scope, w.bucket, w.unit)].append(span)
        phases[(w.scope, w.bucket, w.unit)].add(w.phase)
    moves = {m.call_id: m.phase for m in of_type(run.journal, Reattribution)}
    for call in of_type(run.journal, Call):
        if call.bucket == "unattributed":
            continue
        phase = moves.get(call.call_id, call.phase)
        operation = (call.scope, call.bucket, call.unit)
        home = spans.get((call.scope, phase, call.bucket), [])
        if call.call_id in moves and phase in phases[operation]:
            home = wholes[operation]
        inside = any(start <= call.start_s <= end for start, end in home)
        if not inside and not _cut_off(run, call):
            yield f"call {call.call_id} is booked to {phase} outside any such window"


def _cut_off(run: Run, call: Call) -> bool:
    """Work cut off before its window was written: the last of an epoch that was stopped."""
    rows = [r for r in run.journal if isinstance(r, Window | Call) and r.scope == call.scope]
    stopped = run.manifest["status"] != "complete" or any(r.epoch > call.epoch for r in rows)
    ends = [r.end_s for r in rows if isinstance(r, Window) and r.epoch == call.epoch]
    return stopped and call.start_s > max(ends, default=0.0) - SLACK_S


RULES: dict[str, tuple[str, Examine]] = {
    "R6": ("energy says where it comes from", energy),
    "R7": ("nothing unattributed", late),
    "R8": ("complete, nothing twice", complete),
    "R10": ("same prompts from the same seed", prompts),
    "R11": ("phases add up to the run", sums),
}
