"""Where the cost lies: per phase, per unit, per question, per kind of call, per second of wall."""

from __future__ import annotations

from typing import Any

import pandas as pd

from agentmem.analysis.attribute import OUTSIDE, known_sum
from agentmem.analysis.load import REFERENCES, Run
from agentmem.analysis.stats import percentile
from agentmem.analysis.tables import BILL, mean, title

CAP_BOUND_SHARE = 0.2
"""A kind of call is flagged "cap-bound" when this share or more ended at a token cap."""


def phase_times(run: Run) -> pd.DataFrame:
    """F3's data: construction seconds, and seconds per question to retrieve and to generate."""
    rows = []
    for system in run.systems:
        queries = run.queries[run.queries["system"] == system]
        built = phase_wall(run, system, "construction")
        units = int((run.units["system"] == system).sum())
        row: dict[str, Any] = {"system": system, "title": title(run, system), "units": units}
        row |= {
            "construction_s": built,
            "construction_s_per_unit": built / units if units and built is not None else None,
        }
        for phase in ("retrieval", "generation"):
            row[f"{phase}_s"] = phase_wall(run, system, phase)
            seconds = queries[queries["status"] == "ok"][f"{phase}_s"]
            row[f"{phase}_mean_s"] = mean(seconds)
            row[f"{phase}_p50_s"] = percentile(seconds, 50)
            row[f"{phase}_p95_s"] = percentile(seconds, 95)
        rows.append(row | {"questions": len(queries)})
    return pd.DataFrame(rows)


def phase_wall(run: Run, system: str, phase: str) -> float | None:
    """Wall seconds of a phase on a system's own bill, None where it had no window."""
    seconds = _billed(run, system, phase)["wall_s"]
    return float(seconds.sum()) if len(seconds) else None


def _billed(run: Run, system: str, phase: str) -> pd.DataFrame:
    chosen = run.phases["system"].eq(system) & run.phases["phase"].eq(phase)
    return run.phases[chosen & run.phases["bucket"].isin(BILL)]


def phase_value(run: Run, system: str, phase: str, column: str) -> float:
    """Sum of a phase column over the buckets of a system's own bill."""
    values = _billed(run, system, phase)[column]
    return float(pd.to_numeric(values).fillna(0).sum())


STATES = (
    "client_cpu",
    "queue",
    "prefill",
    "decode",
    "embedding",
    "call_other",
    "core_wait",
    "idle",
)
"""Disjoint parts of a phase's wall time. `call_other`: inside a model call, not explained by the
engine (transport, gateway, or a server that does not say). Outside calls: `client_cpu`, at most
what the worker used; `core_wait`, ready to run without a core; `idle`, the rest, in which the
system waits for its store or for nothing: from outside the two look the same."""


def wall_states(run: Run) -> pd.DataFrame:
    """Wall seconds of each system and phase split into STATES, which add up to `wall_s`.

    Where calls overlapped, the time covered by calls is shared out by their latencies.
    """
    rows = []
    rank = {name: i for i, name in enumerate(run.systems)}
    billed = run.phases[run.phases["bucket"].isin(BILL) & run.phases["phase"].ne(OUTSIDE)]
    for entry in sorted(billed.to_dict("records"), key=lambda e: rank[e["system"]]):
        calls = _calls_of(run, entry["system"], entry["phase"])
        rows.append(
            {"system": title(run, entry["system"]), "phase": entry["phase"]}
            | _states(calls, entry, _core_wait(run, entry["system"], entry["phase"]))
        )
    return pd.DataFrame(rows)


def _core_wait(run: Run, system: str, phase: str) -> float:
    mine = run.windows["system"].eq(system) & run.windows["phase"].eq(phase)
    waits = run.windows[mine & run.windows["bucket"].isin(BILL)]["worker_wait_s"]
    return known_sum(waits) or 0.0


def _calls_of(run: Run, system: str, phase: str) -> pd.DataFrame:
    calls = run.calls
    mine = calls["system"].eq(system) & calls["phase"].eq(phase)
    return calls[mine & calls["bucket"].isin(BILL)]


def _states(calls: pd.DataFrame, entry: dict[Any, Any], core_wait: float) -> dict[str, Any]:
    wall = float(entry["wall_s"])
    covered = min(float(entry["in_calls_s"]), wall)
    total = calls["latency_s"].sum()
    scale = covered / total if total else 0.0
    chat = calls[~calls["embeds"]]
    parts = {n: chat[f"engine_{n}_s"].sum() * scale for n in ("queue", "prefill", "decode")}
    parts["embedding"] = calls[calls["embeds"]]["latency_s"].sum() * scale
    parts["call_other"] = max(0.0, covered - sum(parts.values()))
    cpu = entry["worker_cpu_s"]
    left = max(0.0, wall - covered)
    # What a worker used while a call was in flight cannot be told from what it used outside one.
    parts["client_cpu"] = min(0.0 if cpu is None or pd.isna(cpu) else float(cpu), left)
    parts["core_wait"] = min(core_wait, left - parts["client_cpu"])
    parts["idle"] = left - parts["client_cpu"] - parts["core_wait"]
    return {f"{name}_s": float(parts[name]) for name in STATES} | {"wall_s": wall}


KIND_KEYS = ["system", "phase", "bucket", "stage", "kind", "endpoint"]


def calls_by_kind(run: Run) -> pd.DataFrame:
    """Calls and tokens per system, phase, stage and kind; the share that hit a token cap."""
    calls = run.calls[run.calls["endpoint"] != "other"]
    calls = calls.assign(phase=calls["phase"].fillna(OUTSIDE))
    rows = []
    for key, group in calls.groupby(KIND_KEYS, sort=False, dropna=False):
        ended = group[group["ok"] & ~group["embeds"]]
        capped = ended["finish_reason"].eq("length").mean() if len(ended) else None
        rows.append(
            dict(zip(KIND_KEYS, key, strict=True))
            | {
                "system": title(run, str(key[0])),
                "calls": len(group),
                "failed": int((~group["ok"]).sum()),
                "input_tokens": known_sum(group["input_tokens"]),
                "output_tokens": None
                if group["embeds"].all()
                else known_sum(group["output_tokens"]),
                "sequences_per_call": mean(group["sequences"].astype("float64")),
                "cap_share": capped,
                "cap_bound": capped is not None and capped >= CAP_BOUND_SHARE,
            }
        )
    return pd.DataFrame(rows)


def construction(run: Run) -> pd.DataFrame:
    """The write path: units, events, losses, and model tokens per source token and character."""
    rows = []
    for system in (s for s in run.systems if s not in REFERENCES):
        units = run.units[run.units["system"] == system]
        spent = sum(
            phase_value(run, system, "construction", c) for c in ("input_tokens", "output_tokens")
        )
        tokens, chars = float(units["source_tokens"].sum()), float(units["source_chars"].sum())
        counts = {c: int(units[c].sum()) for c in ("added", "updated", "deleted", "lost")}
        rows.append(
            {"system": title(run, system), "units": len(units)}
            | {f"units_{s}": int(units["status"].eq(s).sum()) for s in ("failed", "lost")}
            | counts
            | {
                "llm_tokens": spent,
                "tokens_per_source_token": spent / tokens if tokens else None,
                "tokens_per_1000_chars": 1000 * spent / chars if chars else None,
                "decode_share": _decode_share(run, system),
            }
        )
    return pd.DataFrame(rows)


def _decode_share(run: Run, system: str) -> float | None:
    """Generated tokens as a share of all LLM tokens of construction."""
    read = phase_value(run, system, "construction", "input_tokens")
    written = phase_value(run, system, "construction", "output_tokens")
    return written / (read + written) if read + written else None


def footprints(run: Run) -> pd.DataFrame:
    """Bytes on disk per system and part of its store, after construction, summed over histories."""
    table = run.footprints
    rows = []
    for key, group in table.groupby(["system", "store"], sort=False):
        system, store = key
        built = group[group["at"] == "constructed"]
        last = built if len(built) else group.groupby("scope", sort=False).tail(1)
        chars = run.units[run.units["system"] == system]["source_chars"].sum()
        size = int(last["size_bytes"].sum())
        rows.append(
            {"system": title(run, str(system)), "store": store, "size_bytes": size}
            | {"bytes_per_source_char": size / float(chars) if chars else None}
        )
    return pd.DataFrame(rows, columns=["system", "store", "size_bytes", "bytes_per_source_char"])


def failures(run: Run) -> pd.DataFrame:
    """Failures counted by system, place and kind, with the first message of each."""
    columns = ["system", "where", "kind", "count", "first_unit", "message"]
    rows = [
        dict(zip(("system", "where", "kind"), key, strict=True))
        | {
            "system": title(run, str(key[0])),
            "count": len(group),
            "first_unit": group["unit"].iloc[0],
            "message": str(group["message"].iloc[0]).strip().split("\n")[0][:300],
        }
        for key, group in run.failures.groupby(["system", "where", "kind"], sort=False)
    ]
    return pd.DataFrame(rows, columns=columns)
