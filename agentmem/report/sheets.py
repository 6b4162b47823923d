"""The report's tables, each with its columns and the note that a reader needs to read it right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentmem.analysis import breakdown, tables
from agentmem.analysis.breakdown import CAP_BOUND_SHARE, STATES
from agentmem.analysis.checks import check_run
from agentmem.analysis.frames import frame
from agentmem.analysis.load import Run
from agentmem.analysis.scores import CORRECT_RULE
from agentmem.analysis.verdict import Check
from agentmem.report import format as fmt
from agentmem.report.sheet import Column, Sheet, column, sheet

Runs = Sequence[tuple[str, Run]]
NAME = column("system", "title", fmt.text)
PLAIN = column("system", "system", fmt.text)


def _tokens(row: dict[str, Any]) -> str:
    """LLM tokens; "at least" when some attempts did not report theirs."""
    sign = "≥ " if row["tokens_missing"] else ""
    return f"{sign}{fmt.count(row['input_tokens'])} / {fmt.count(row['output_tokens'])}"


def _accuracy(row: dict[str, Any]) -> str:
    if fmt.known(row["accuracy"]) is None:
        return fmt.UNKNOWN
    low, high = 100 * row["accuracy_low"], 100 * row["accuracy_high"]
    return f"{fmt.percent(row['accuracy'])} ({low:.0f} – {high:.0f})"


def _with_band(key: str) -> Column:
    names = {"energy": ("energy_j", "energy_low_j", "energy_high_j")}
    value, low, high = names.get(key, (key, f"{key}_low", f"{key}_high"))

    def cell(row: dict[str, Any]) -> str:
        around = fmt.band(row[low], row[high], fmt.joules)
        return f"{fmt.joules(row[value])} ({around})" if around else fmt.joules(row[value])

    return Column("energy" if key == "energy" else "J per correct", cell)


def end_to_end(runs: Runs) -> Sheet:
    right = Column("right", lambda r: f"{r['correct']} of {r['questions']}", True)
    recall = Column(
        "evidence found: id / text",
        lambda r: f"{fmt.percent(r['recall_ids'])} / {fmt.percent(r['recall_text'])}",
        hint="by source id where the system returns ids / by gold answer in the retrieved text",
    )
    return sheet(
        "t3_end_to_end",
        "End to end",
        f"{CORRECT_RULE} In brackets: 95 % interval of the share (Wilson). Rows in a lighter tone "
        "are references run by the harness: the reader without memory, and the reader given the "
        "evidence. “≥” marks token sums with attempts that did not report. Set-up, wasted and "
        "unattributed work is not in this table; it is in the table by phase.",
        runs,
        tables.end_to_end,
        [
            NAME,
            right,
            Column("accuracy, %", _accuracy),
            column("F1", "f1", fmt.short),
            column("stale answers", "stale_share", fmt.percent),
            recall,
            column("wall", "wall_s", fmt.seconds),
            column("LLM calls", "chat_calls"),
            column("embedding calls", "embed_calls"),
            Column("LLM tokens in / out", _tokens),
            column("embedding tokens", "embed_tokens"),
            column("CPU-seconds", "cpu_s", fmt.short),
            _with_band("energy"),
            _with_band("j_per_correct"),
            column("source of energy", "energy_source", fmt.text),
        ],
    )


def phase_times(runs: Runs) -> Sheet:
    def tail(phase: str) -> Column:
        return Column(
            f"{phase} per question: p50 / p95",
            lambda r: f"{fmt.seconds(r[f'{phase}_p50_s'])} / {fmt.seconds(r[f'{phase}_p95_s'])}",
        )

    return sheet(
        "f3_phase_times",
        "Seconds per phase",
        "Construction is the whole write path; retrieval is everything before the answer call; "
        "generation is the answer call. Times of failed questions are left out and counted.",
        runs,
        breakdown.phase_times,
        [
            NAME,
            column("units", "units"),
            column("construction", "construction_s", fmt.seconds),
            column("per unit", "construction_s_per_unit", fmt.seconds),
            column("questions", "questions"),
            tail("retrieval"),
            tail("generation"),
        ],
    )


def phases(runs: Runs) -> Sheet:
    def table(run: Run) -> Any:
        rank = {name: i for i, name in enumerate(run.systems)}
        ordered = run.phases.sort_values("system", key=lambda s: s.map(rank), kind="stable")
        return ordered.assign(title=[tables.title(run, s) for s in ordered["system"]])

    missing = ("input_tokens_missing", "output_tokens_missing", "embed_tokens_missing")
    return sheet(
        "phases",
        "By system, phase and bucket",
        "Attempts count every HTTP request; calls group the attempts of one request. Latencies are "
        "of successful calls to the LLM. “Not reported” counts token figures a server did not "
        "give: they are unknown, not zero. Quiet waits are not in the seconds.",
        runs,
        table,
        [
            NAME,
            column("phase", "phase", fmt.text),
            column("bucket", "bucket", fmt.text),
            column("attempts", "attempts"),
            column("calls", "logical_calls"),
            column("failed attempts", "failed_attempts"),
            column("input tokens", "input_tokens"),
            column("of these cached", "cache_read_tokens"),
            column("output tokens", "output_tokens"),
            column("embedding tokens", "embed_tokens"),
            Column("not reported", lambda r: fmt.count(sum(r[m] for m in missing))),
            column("wall", "wall_s", fmt.seconds),
            column("call p50", "chat_p50_s", fmt.seconds),
            column("call p95", "chat_p95_s", fmt.seconds),
            column("prefill", "prefill_s", fmt.seconds),
            column("decode", "decode_s", fmt.seconds),
            column("queue", "queue_s", fmt.seconds),
            column("worker CPU", "worker_cpu_s", fmt.seconds),
            column("engine CPU", "engine_cpu_s", fmt.seconds),
            column("energy", "energy_j", fmt.joules),
            column("source", "energy_source", fmt.text),
        ],
    )


def wall_states(runs: Runs) -> Sheet:
    headings = {"call_other": "call, not explained", "own": "system's own work"}
    return sheet(
        "wall_states",
        "Where the wall time went",
        "Disjoint parts that add up to the wall time: inside model calls as the engine reports "
        "them, and outside any call. “Not explained” is transport, the gateway, or a server "
        "that does not say.",
        runs,
        breakdown.wall_states,
        [
            PLAIN,
            column("phase", "phase", fmt.text),
            *(column(headings.get(s, s), f"{s}_s", fmt.seconds) for s in STATES),
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
        f"is cap-bound when more than {100 * CAP_BOUND_SHARE:.0f} % of its replies were cut off "
        "at the token cap: its lengths then say more about the cap than about the system.",
        runs,
        breakdown.calls_by_kind,
        [
            PLAIN,
            column("phase", "phase", fmt.text),
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
        "Amplification is LLM tokens spent per token of source text.",
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
            column("amplification", "tokens_per_source_token", fmt.short),
            column("per 1,000 characters", "tokens_per_1000_chars", fmt.short),
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
    )


def checks(runs: Runs) -> Sheet:
    verdicts = {True: "holds", False: "DOES NOT HOLD", None: "not shown by one run"}

    def verdict(row: dict[str, Any]) -> str:
        return verdicts[None if fmt.known(row["ok"]) is None else bool(row["ok"])]

    return sheet(
        "checks",
        "Accounting rules",
        "Each rule is examined on the run's own rows.",
        runs,
        lambda run: frame(check_run(run), Check).astype({"ok": object}),
        [
            column("rule", "rule", fmt.text),
            column("says", "title", fmt.text),
            Column("verdict", verdict, False),
            column("examined", "detail", fmt.text),
        ],
    )


ALL = (
    end_to_end,
    phase_times,
    phases,
    wall_states,
    kinds,
    construction,
    footprints,
    failures,
    taxonomy,
    checks,
)
