"""The sentences of a report, each made from the run's own data."""

from __future__ import annotations

import re
from typing import Any

from agentmem.analysis.breakdown import construction
from agentmem.analysis.load import REFERENCES, Run
from agentmem.analysis.repeats import rounds
from agentmem.analysis.validity_energy import energy_order
from agentmem.report import format as fmt

Rows = list[dict[str, Any]]
SMALL_PARAMETERS = 3e9
"""Below this many parameters answers are read as a sign of cost and shape, not of quality."""


def headline(run: Run) -> str:
    """What ran, on what."""
    own = [s for s in run.systems if s not in REFERENCES]
    engine = run.manifest.get("engine") or {}
    histories = (run.manifest.get("workload") or {}).get("histories") or {}
    tokens = sum(h.get("source_tokens") or 0 for h in histories.values())
    questions = sum(h.get("questions") or 0 for h in histories.values())
    return (
        f"{fmt.plural(len(own), 'memory system')}, {fmt.plural(questions, 'question')} about "
        f"{fmt.plural(tokens, 'token')} of history, answered by {engine.get('model') or 'a model'}."
    )


def reading(run: Run, t3: Rows) -> tuple[str, ...]:
    """The run in a few sentences: who was right, what it cost, what the references say."""
    own = [r for r in t3 if not r["reference"] and r["questions"]]
    if not own:
        return ("No system answered a question.",)
    sentences = [repeated(run), _best(own), _references(t3), _spread(own), _write_heavy(run, own)]
    return tuple(s for s in sentences if s)


def repeated(run: Run) -> str:
    """Says of a run that went round several times how its figures are to be read."""
    n = len(rounds(run))
    if n == 1:
        return ""
    return (
        f"Every system ran {n} times: figures in these sentences are means of one repeat, and "
        "tables have a row for each."
    )


def _best(own: Rows) -> str:
    top = max(r["correct"] for r in own)
    names = _list([r["title"] for r in own if r["correct"] == top])
    n = own[0]["questions"]
    if not top:
        return f"No system got any of the {n} questions right."
    return f"Most answers right: {names} with {fmt.mean(top)} of {n}.{_apart(own, top)}"


def _apart(own: Rows, top: float) -> str:
    """A caution when the intervals of best and worst overlap."""
    best = next(r for r in own if r["correct"] == top)
    worst = min(own, key=lambda r: r["correct"])
    if len(own) < 2 or best["accuracy_low"] > worst["accuracy_high"]:
        return ""
    return (
        f" The intervals of all systems overlap: {best['questions']} questions are too few to "
        "tell them apart."
    )


def _references(t3: Rows) -> str:
    by_name = {r["system"]: r for r in t3 if r["reference"] and r["questions"]}
    if len(by_name) < len(REFERENCES):
        return ""
    blind, told = by_name["no_memory"], by_name["oracle_evidence"]
    return (
        f"The same reader gets {told['correct']} of {told['questions']} right when it is handed "
        f"the evidence, and {blind['correct']} with no memory at all: that is the room in which "
        "memory can show."
    )


def _spread(own: Rows) -> str:
    timed = [r for r in own if fmt.known(r["wall_s"])]
    if len(timed) < 2:
        return ""
    low = min(timed, key=lambda r: r["wall_s"])
    high = max(timed, key=lambda r: r["wall_s"])
    ratio = high["wall_s"] / low["wall_s"]
    return (
        f"From the first unit to the last answer {low['title']} took "
        f"{fmt.seconds(low['wall_s'])} and {high['title']} {fmt.seconds(high['wall_s'])}, "
        f"{fmt.short(ratio)} times as long."
    )


def _write_heavy(run: Run, own: Rows) -> str:
    """Which systems spent more LLM tokens on building memory than on all questions."""
    heavy = []
    for row in own:
        mine = run.phases[run.phases["system"].eq(row["system"])]
        tokens = mine.groupby("phase")[["input_tokens", "output_tokens"]].sum().sum(axis=1)
        built = float(tokens.get("construction", 0.0))
        if built > float(tokens.sum()) - built:
            heavy.append(row["title"])
    if not heavy:
        return ""
    verb = "spends" if len(heavy) == 1 else "spend"
    return f"{_list(heavy)} {verb} more LLM tokens on building memory than on all the questions."


def _list(names: list[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def facts(run: Run) -> tuple[tuple[str, str], ...]:
    """Run identity, model, machine, workload: what has to be equal for runs to be compared."""
    manifest = run.manifest
    engine, embedder = manifest.get("engine") or {}, manifest.get("embedder") or {}
    workload, machine = manifest.get("workload") or {}, manifest.get("machine") or {}
    pairs = {
        "run": manifest.get("run_id"),
        "identity": manifest.get("identity"),
        "status": manifest.get("status"),
        "made": manifest.get("created"),
        "agentmem": manifest.get("agentmem"),
        "model": _join(engine, ("model", "mode", "backend", "kind")),
        "window": engine.get("window") or engine.get("window_tokens"),
        "threads": engine.get("threads"),
        "weights": engine.get("weights"),
        "embedder": _join(embedder, ("model",)),
        "workload": workload.get("name"),
        "ingest unit": _ingest(workload.get("params") or {}),
        "caches": _caches(run),
        "machine": ", ".join(f for f in (_fact(k, v) for k, v in machine.items()) if f),
        "order of systems": ", ".join(manifest.get("order") or ()),
        "repeats": n if (n := len(rounds(run))) > 1 else None,
    }
    return tuple((name, str(value)) for name, value in pairs.items() if value)


def _ingest(params: dict[str, Any]) -> str:
    """What is handed over at a time, and what counts its tokens."""
    unit, counted = params.get("unit"), params.get("tokenizer")
    size = f" of {params['chunk_tokens']} tokens" if params.get("chunk_tokens") else ""
    told = f"{unit}{size}" if unit else ""
    return f"{told}, counted by {counted}" if told and counted else told


def _caches(run: Run) -> str:
    """Cold or warm, and what caches served: token counts are cold ones, whatever they served."""
    stated = (run.manifest.get("profile") or {}).get("run", {}).get("cache") or "not stated"
    rows = run.phases[run.phases["bucket"].eq("measured")]
    read, cached = (float(rows[c].fillna(0).sum()) for c in ("input_tokens", "cache_read_tokens"))
    share = f"; a cache served {fmt.percent(cached / read)} of the prompt tokens" if read else ""
    return f"{stated}{share}"


def _fact(name: str, value: Any) -> str:
    """One plain fact about the machine, empty for nested or missing ones."""
    label = name.replace("_", " ")
    if isinstance(value, bool):
        return label if value else ""
    if name.endswith("_bytes") and isinstance(value, int):
        return f"{label.removesuffix(' bytes')} {fmt.size(value)}"
    return f"{label} {value}" if isinstance(value, str | int | float) and value != "" else ""


def _join(values: dict[str, Any], keys: tuple[str, ...]) -> str:
    return ", ".join(str(values[k]) for k in keys if values.get(k))


def parameters(run: Run) -> float | None:
    """Size of the reader: what the engine states, else what its name says, else unknown."""
    engine = run.manifest.get("engine") or {}
    if engine.get("parameters"):
        return float(engine["parameters"])
    name = str(engine.get("model") or "").rsplit("/", 1)[-1]
    found = re.findall(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)([mb])(?![a-z0-9])", name.lower())
    scale = {"m": 1e6, "b": 1e9}
    return max((float(n) * scale[unit] for n, unit in found), default=None)


def small_model(run: Run, t3: Rows) -> str:
    """What this run's model can and cannot show."""
    n = parameters(run)
    if n is None:
        return (
            "The size of the model is not known here. Read accuracies against the two reference "
            "rows, and differences between systems against the intervals beside them."
        )
    size = f"{n / 1e9:.3g} billion" if n >= 1e9 else f"{n / 1e6:.3g} million"
    if n >= SMALL_PARAMETERS:
        return (
            f"The model has {size} parameters. Accuracy and cost can both be read, within the "
            "intervals shown; other models may rank the systems differently."
        )
    told = next((r for r in t3 if r["system"] == "oracle_evidence" and r["questions"]), None)
    ceiling = (
        f" Handed the evidence itself, it gets {told['correct']} of {told['questions']} right: "
        "what it misses there is no fault of any memory."
        if told
        else ""
    )
    return (
        f"The model has {size} parameters. A model this small shows cost and shape: how many calls "
        "and tokens each phase takes, where the seconds go, what grows with the history, what is "
        "found by retrieval. It does not show how accurate a system is with a capable model, and "
        "accuracies here are no ranking." + ceiling + _contract(run)
    )


def _contract(run: Run) -> str:
    """A caution for systems whose write path depends on the model keeping to a format."""
    table = construction(run)
    lossy = table[(table["llm_tokens"] > 0) & ((table["lost"] > 0) | (table["units_failed"] > 0))]
    if lossy.empty:
        return ""
    names = _list([str(s) for s in lossy["system"]])
    return (
        f" {names} lets the model write its memory and lost some of it here; with a stronger model "
        "both the losses and the number of calls would be different."
    )


def energy(run: Run, t3: Rows) -> str:
    """How the joules were obtained."""
    sources = {r["energy_source"] for r in t3 if r["energy_source"] != "none"}
    stated = run.manifest.get("energy") or {}
    if sources == {"modelled"}:
        watts = stated.get("w_per_core") or {}
        return (
            "Energy is modelled, not measured: no counter could be read on this machine. It is the "
            "CPU time of the system's worker and of the engine, times a stated "
            f"{watts.get('low')} – {watts.get('high')} W per busy core (middle {watts.get('mid')} "
            "W). CPU-seconds are the measured quantity. Memory, idle power and cooling are not in "
            f"it. By energy: {energy_order(run) or 'no two bands to put in order'}."
        )
    if sources:
        scope = stated.get("scope") or "unknown scope"
        return (
            f"Energy was read from {_list(sorted(sources))} ({scope}) over each window; idle power "
            "of the device during the window is part of it. Different sources are never added."
        )
    return (
        "No energy figure: no counter could be read, and the CPU time of the model server is not "
        "known, so that a modelled figure would leave out the larger part."
    )
