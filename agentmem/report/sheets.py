"""The report's tables, each with its columns and the note that a reader needs to read it right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from agentmem.analysis import breakdown, tables
from agentmem.analysis.breakdown import CAP_BOUND_SHARE, STATES
from agentmem.analysis.energy import MEASURED
from agentmem.analysis.load import Run
from agentmem.analysis.locomo import locomo_means
from agentmem.analysis.scores import CORRECT_RULE
from agentmem.report import format as fmt
from agentmem.report import valid_sheets, write_sheets
from agentmem.report.engine_sheet import engine_use_sheet
from agentmem.report.sheet import Column, Sheet, column, sheet
from agentmem.report.tradeoff_sheet import tradeoff_sheet

Runs = Sequence[tuple[str, Run]]
NAME = column("system", "title", fmt.text)
PLAIN = column("system", "system", fmt.text)


def _tokens(row: dict[str, Any]) -> str:
    """LLM tokens; "at least" when some attempts did not report theirs."""
    sign = "≥ " if row["tokens_missing"] else ""
    return f"{sign}{fmt.count(row['input_tokens'])} / {fmt.count(row['output_tokens'])}"


def pair(heading: str, first: str, second: str) -> Column:
    """Two durations in one column."""

    def cell(row: dict[str, Any]) -> str:
        both = [fmt.seconds(row[key]) for key in (first, second)]
        return fmt.UNKNOWN if both == [fmt.UNKNOWN] * 2 else " / ".join(both)

    return Column(heading, cell)


def _accuracy(row: dict[str, Any]) -> str:
    if fmt.known(row["accuracy"]) is None:
        return fmt.UNKNOWN
    low, high = 100 * row["accuracy_low"], 100 * row["accuracy_high"]
    return f"{fmt.percent(row['accuracy'])} ({low:.0f} – {high:.0f})"


def _with_band(heading: str, value: str, low: str, high: str) -> Column:
    def cell(row: dict[str, Any]) -> str:
        return fmt.band(row[low], row[high], fmt.joules) or fmt.joules(row[value])

    return Column(heading, cell)


RIGHT = Column("right", lambda r: f"{r['correct']} of {r['questions']}", True)


def end_to_end(runs: Runs) -> Sheet:
    band = ("energy_j", "energy_low_j", "energy_high_j")
    per_correct = ("j_per_correct", "j_per_correct_low", "j_per_correct_high")
    return sheet(
        "t3_end_to_end",
        "End to end",
        "Construction, retrieval and generation together. Rows in a lighter tone are references "
        "run by the harness: the reader without memory, and the reader given the evidence. “≥” "
        "marks token sums with attempts that did not report. CPU-seconds are measured; modelled "
        "energy is a band, and bands that overlap have no order. Set-up, wasted and unattributed "
        "work is not in this table; it is in the table by phase.",
        runs,
        tables.end_to_end,
        [
            NAME,
            RIGHT,
            column("wall", "wall_s", fmt.seconds),
            column("LLM calls", "chat_calls"),
            column("embedding calls", "embed_calls"),
            Column("LLM tokens in / out", _tokens),
            column("tokens embedded", "embed_tokens"),
            column("CPU-seconds", "cpu_s", fmt.short),
            _with_band("energy", *band),
            _with_band("J per correct", *per_correct),
            column("source", "energy_source", fmt.text),
        ],
    )


def _category(key: str) -> Column:
    return Column(key.removeprefix("category: "), lambda row: fmt.text(row[key]))


def _qualities(run: Run) -> pd.DataFrame:
    """Quality by category, with LoCoMo's own score where the questions are LoCoMo's."""
    table, own = tables.by_category(run), locomo_means(run)
    scores = [(own or {}).get(system) for system in table.get("system", ())]
    return table.assign(locomo_f1=pd.Series(scores, dtype="float64"))


LOCOMO_NOTE = (
    " LoCoMo F1: the score of that data set's authors, over word stems; an adversarial question "
    "counts when the answer says “not mentioned” or “no information available”."
)


def quality(runs: Runs) -> Sheet:
    found = (str(c) for _, run in runs for c in run.scores["category"])
    categories = [f"category: {c}" for c in dict.fromkeys(found)]
    locomo = any(locomo_means(run) for _, run in runs)
    return sheet(
        "quality",
        "Answers",
        f"{CORRECT_RULE} In brackets: 95 % interval of the share (Wilson). Stale: the answer holds "
        "a superseded value and no right one. Evidence found, by id: share of the evidence whose "
        "source was retrieved, where a system returns sources; by text: questions for which a "
        "right answer stands in the retrieved text. The two are different measures."
        + (LOCOMO_NOTE if locomo else ""),
        runs,
        _qualities,
        [
            NAME,
            RIGHT,
            Column("accuracy, %", _accuracy),
            *(_category(c) for c in categories),
            column("F1", "f1", fmt.short),
            *([column("LoCoMo F1", "locomo_f1", fmt.short)] if locomo else []),
            column("stale", "stale_share", fmt.percent),
            column("says not known", "abstained_share", fmt.percent),
            column("evidence by id", "recall_ids", fmt.percent),
            column("evidence by text", "recall_text", fmt.percent),
        ],
    )


def phase_times(runs: Runs) -> Sheet:
    return sheet(
        "f3_phase_times",
        "Seconds per phase",
        "Construction is the whole write path; retrieval is everything before the answer call; "
        "generation is the answer call. Times of failed questions are left out.",
        runs,
        breakdown.phase_times,
        [
            NAME,
            column("units", "units"),
            column("construction", "construction_s", fmt.seconds),
            column("per unit", "construction_s_per_unit", fmt.seconds),
            column("questions", "questions"),
            pair("retrieval per question: p50 / p95", "retrieval_p50_s", "retrieval_p95_s"),
            pair("generation per question: p50 / p95", "generation_p50_s", "generation_p95_s"),
        ],
    )


def phases(runs: Runs) -> Sheet:
    def table(run: Run) -> Any:
        rank = {name: i for i, name in enumerate(run.systems)}
        ordered = run.phases.sort_values("system", key=lambda s: s.map(rank), kind="stable")
        return ordered.assign(title=[tables.title(run, s) for s in ordered["system"]])

    measured = any(run.phases["energy_source"].isin(MEASURED).any() for _, run in runs)
    missing = ("input_tokens_missing", "output_tokens_missing", "embed_tokens_missing")
    return sheet(
        "phases",
        "By system, phase and bucket",
        "Attempts count every HTTP request; calls group the attempts of one request. Input, the "
        "part of it that a cache served, output and embedded are tokens. Latencies are of "
        "successful calls to the LLM. “Not told” counts token figures a server did not "
        "give: they are unknown, not zero. Quiet waits are not in the seconds. "
        "Modelled energy is CPU-seconds times stated watts and has no column here.",
        runs,
        table,
        [
            NAME,
            column("phase", "phase", fmt.text),
            column("bucket", "bucket", fmt.text),
            column("attempts", "attempts"),
            column("calls", "logical_calls"),
            column("failed", "failed_attempts"),
            column("input", "input_tokens"),
            column("cached", "cache_read_tokens"),
            column("output", "output_tokens"),
            column("embedded", "embed_tokens"),
            Column("not told", lambda r: fmt.count(sum(r[m] for m in missing))),
            column("wall", "wall_s", fmt.seconds),
            pair("call p50 / p95", "chat_p50_s", "chat_p95_s"),
            pair("CPU worker / engine", "worker_cpu_s", "engine_cpu_s"),
            *([column("energy", "energy_j", fmt.joules)] if measured else []),
        ],
    )


STATE_NAMES = {s: s.replace("_", " ") for s in STATES} | {
    "client_cpu": "client CPU",
    "call_other": "call, other",
    "idle": "store, idle",
}


def wall_states(runs: Runs) -> Sheet:
    return sheet(
        "wall_states",
        "Where the wall time went",
        "Disjoint parts that add up to the wall time: inside model calls as the engine reports "
        "them, and outside any call. “Call, other” is transport, the gateway, or a server that "
        "does not say; “client CPU” is at most what the worker used, “core wait” at most what it "
        "waited for a core; “store, idle” is the rest: from outside a store at work and an idle "
        "process look the same.",
        runs,
        breakdown.wall_states,
        [
            PLAIN,
            column("phase", "phase", fmt.text),
            *(column(STATE_NAMES[s], f"{s}_s", fmt.seconds) for s in STATES),
            column("wall", "wall_s", fmt.seconds),
        ],
    )


def kinds(runs: Runs) -> Sheet:
    def capped(row: dict[str, Any]) -> str:
        return fmt.percent(row["cap_share"]) + (" cap-bound" if row["cap_bound"] else "")

    return sheet(
        "calls_by_kind",
        "Calls by kind",
        "Kinds are recognised by each system's own prompts; “unknown” is printed as such. A kind "
        f"is cap-bound when {100 * CAP_BOUND_SHARE:.0f} % or more of its replies were cut off at "
        "the token cap: its lengths then say more about the cap than about the system.",
        runs,
        breakdown.calls_by_kind,
        [
            PLAIN,
            column("phase", "phase", fmt.text),
            column("stage", "stage", fmt.text),
            column("kind", "kind", fmt.text),
            column("endpoint", "endpoint", fmt.text),
            column("attempts", "calls"),
            column("failed", "failed"),
            column("input tokens", "input_tokens"),
            column("output tokens", "output_tokens"),
            column("sequences per call", "sequences_per_call", fmt.short),
            Column("ended at cap", capped),
        ],
    )


def construction(runs: Runs) -> Sheet:
    return sheet(
        "construction",
        "What was stored, changed and lost",
        "Records in each system's own sense. “Lost” is what a system dropped without an error. "
        "Decode share: tokens written as a share of all LLM tokens of construction.",
        runs,
        breakdown.construction,
        [
            PLAIN,
            column("units", "units"),
            column("units failed", "units_failed"),
            column("added", "added"),
            column("updated", "updated"),
            column("deleted", "deleted"),
            column("lost", "lost"),
            column("LLM tokens", "llm_tokens"),
            column("decode share", "decode_share", fmt.percent),
        ],
    )


def footprints(runs: Runs) -> Sheet:
    return sheet(
        "footprints",
        "Footprint on disk",
        "Apparent size of each part of the store after construction.",
        runs,
        breakdown.footprints,
        [
            PLAIN,
            column("part", "store", fmt.text),
            column("size", "size_bytes", fmt.size),
            column("bytes per source character", "bytes_per_source_char", fmt.short),
        ],
    )


def failures(runs: Runs) -> Sheet:
    return sheet(
        "failures",
        "Failures",
        "What went wrong and was lived through, with the first message of each.",
        runs,
        breakdown.failures,
        [
            PLAIN,
            column("where", "where", fmt.text),
            column("kind", "kind", fmt.text),
            column("count", "count"),
            column("first at", "first_unit", fmt.text),
            column("message", "message", fmt.text),
        ],
    )


def taxonomy(runs: Runs) -> Sheet:
    names = [*tables.TAXONOMY.values(), "upstream", "fidelity"]
    return sheet(
        "t1_taxonomy",
        "The systems",
        "As each system's own description says. Fidelity “shipped” is the upstream as published.",
        runs[:1] if len({tuple(r.systems) for _, r in runs}) == 1 else runs,
        tables.taxonomy,
        [PLAIN, *(column(name, name, fmt.text) for name in names)],
        whole=True,
    )


ALL = (
    end_to_end,
    valid_sheets.validity,
    quality,
    tradeoff_sheet,
    phase_times,
    phases,
    wall_states,
    engine_use_sheet,
    kinds,
    write_sheets.amplification,
    write_sheets.amortised,
    construction,
    footprints,
    failures,
    taxonomy,
    valid_sheets.truths,
    valid_sheets.checks,
    valid_sheets.rules,
)
