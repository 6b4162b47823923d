"""Validity rules V1-V10: whether a run's figures may be compared, apart from its books (R1-R11).

A rule that does not hold is no accounting fault: the figures are right and say less than they seem
to. `None` means that the run does not tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from agentmem.analysis.breakdown import CAP_BOUND_SHARE, STATES, wall_states
from agentmem.analysis.load import REFERENCES, Run
from agentmem.analysis.tables import title
from agentmem.analysis.validity_energy import energy_order
from agentmem.analysis.validity_rows import HARNESS, capped, completeness, lane, stored_nothing
from agentmem.analysis.verdict import Check, Examine, Found

SLACK_S = 1e-3


@lru_cache(maxsize=4)  # a report asks twice
def check_validity(run: Run) -> tuple[Check, ...]:
    """All validity rules, in order."""
    return tuple(_verdict(rule, name, examine(run)) for rule, (name, examine) in RULES.items())


def _verdict(rule: str, name: str, found: Found) -> Check:
    if found.faults:
        return Check(rule, name, False, "; ".join(found.faults))
    return Check(rule, name, True if found.provable else None, found.looked_at)


def own_systems(run: Run) -> list[str]:
    return [s for s in run.systems if s not in REFERENCES]


def stored(run: Run) -> Found:
    """V1: every system kept at least one record, unless it is one that keeps none."""
    own = own_systems(run)
    faults = [
        f"{title(run, s)} {(completeness(run, s) or '').split(';')[0]}"
        for s in own
        if stored_nothing(run, s)
    ]
    built = run.units["system"].nunique() if len(run.units) else 0
    return Found(tuple(faults), f"{built} of {len(own)} systems built something", built > 0)


def cut(run: Run) -> Found:
    """V2: ingest units are cut by one named tokenizer, whatever the model."""
    params = (run.manifest.get("workload") or {}).get("params") or {}
    name, unit = params.get("tokenizer"), params.get("unit")
    if not name:
        return Found((), "the manifest names no tokenizer", provable=False)
    return Found((), f"units ({unit or 'as the workload has them'}) counted by {name}")


def caps(run: Run) -> Found:
    """V3: replies end by themselves; a kind that often ends at the token cap is cap-bound."""
    told = capped(run)
    faults = [f"{name}: {said} cap-bound" for name, said in told.items() if said != "none"]
    limit = f"no kind with {100 * CAP_BOUND_SHARE:.0f} % or more of its replies cut off at the cap"
    return Found(tuple(faults), limit, provable=bool(told))


def bands(run: Run) -> Found:
    """V4: energy is ordered only where bands lie apart."""
    order = energy_order(run)
    return Found((), order or "no two modelled bands to order", provable=order is not None)


def walls(run: Run) -> Found:
    """V5: the disjoint states of every phase add up to its wall time; no engine time beyond it."""
    table = wall_states(run)
    if table.empty:
        return Found((), "no window", provable=False)
    gap = (table[[f"{s}_s" for s in STATES]].sum(axis=1) - table["wall_s"]).abs()
    faults = [
        f"{row['system']}, {row['phase']}: states differ from the wall by {row['gap']:.3g} s"
        for row in table.assign(gap=gap).to_dict("records")
        if row["gap"] > SLACK_S
    ]
    faults += _overlong(run)
    return Found(tuple(faults), f"{len(STATES)} states add up in {len(table)} phases")


def _overlong(run: Run) -> Iterator[str]:
    """Calls in which the engine claims more seconds than the gateway saw."""
    parts = ["engine_queue_s", "engine_prefill_s", "engine_decode_s"]
    over = run.calls[parts].sum(axis=1) > run.calls["latency_s"] + SLACK_S
    for system, group in run.calls[over].groupby("system", sort=False):
        yield f"{title(run, str(system))}: the engine claims more than the latency of {len(group)}"


def setup(run: Run) -> Found:
    """V6: imports and server starts have a bucket of their own."""
    seen = set(run.phases[run.phases["bucket"].eq("setup")]["system"])
    without = [title(run, s) for s in own_systems(run) if s not in seen]
    seconds = run.phases[run.phases["bucket"].eq("setup")]["wall_s"].sum()
    if without:
        return Found((), f"no set-up on record for {', '.join(without)}", provable=False)
    return Found((), f"{float(seconds):.3g} s of set-up lie in no phase", provable=bool(seen))


def lanes(run: Run) -> Found:
    """V7: one lane of answering; a system that answers in its own loop is a lane of its own."""
    found = {title(run, s): lane(run, s) for s in run.systems}
    native = [f"{name}: answers by {where}" for name, where in found.items() if where != HARNESS]
    native = [text for text in native if not text.endswith("None")]
    if native and any(where == HARNESS for where in found.values()):
        return Found((*native, "not to be compared with answers by the harness"), "")
    return Found((), "all answers from one lane", provable=any(found.values()))


def timeouts(run: Run) -> Found:
    """V8: no unit or question was cut short by a time-out."""
    late = run.failures[run.failures["kind"] == "timeout"]
    faults = [
        f"{title(run, str(r['system']))}, {r['unit']}: time-out in {r['where']}"
        for r in late.to_dict("records")
    ]
    return Found(tuple(faults), "no time-out", provable=bool(len(run.units) + len(run.queries)))


def alone(run: Run) -> Found:
    """V9: the machine had little else to do, by the limit that the run states."""
    stated = run.manifest.get("contention") or {}
    share, limit = (stated.get("run") or {}).get("wait_share"), stated.get("limit")
    if share is None or limit is None:
        return Found((), "contention was not recorded", provable=False)
    said = f"{100 * share:.1f} % of the CPU time wanted went by waiting for a core"
    said += f", limit {100 * limit:.0f} %"
    over = stated.get("flagged") or ()
    where = f"; above it: {', '.join(map(str, over))}" if over else ""
    return Found((said + where,) if over or stated.get("exceeded") else (), said)


def shipped(run: Run) -> Found:
    """V10: systems run as their authors published them."""
    infos = run.manifest.get("systems") or {}
    told = {s: (infos.get(s) or {}).get("fidelity") for s in own_systems(run)}
    faults = [f"{title(run, s)}: {f}" for s, f in told.items() if f not in (None, "shipped")]
    return Found(tuple(faults), "all as shipped", provable=all(told.values()) and bool(told))


RULES: dict[str, tuple[str, Examine]] = {
    "V1": ("something was stored", stored),
    "V2": ("units cut by a named tokenizer", cut),
    "V3": ("replies end by themselves", caps),
    "V4": ("energy ordered only where bands lie apart", bands),
    "V5": ("wall time splits into states that add up", walls),
    "V6": ("set-up is kept apart", setup),
    "V7": ("one lane of answering", lanes),
    "V8": ("no time-outs", timeouts),
    "V9": ("the machine was quiet", alone),
    "V10": ("systems as published", shipped),
}
