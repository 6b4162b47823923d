"""Writes a synthetic run folder whose every figure is known, from real row types.

Six systems answer ten questions about four sessions. Each kind of row occurs: a retry, an open
call, a call without usage, a tool loop's Reattribution, losses, failures, hostile text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agentmem.records import (
    Call,
    Failure,
    Footprint,
    Query,
    Row,
    Sample,
    Unit,
    Window,
    to_json,
)
from tests.analysis.synth import (
    HISTORY,
    QUESTION_COUNT,
    UNITS,
    begin_of,
    engine_truth,
    manifest,
    new_call,
)

HOSTILE = '<script>alert("x")</script><img src=x onerror=alert(1)>'


@dataclass(frozen=True)
class Plan:
    """What one synthetic system spends: calls per unit and per question."""

    name: str
    extract: int = 0
    embeds_per_unit: int = 0
    embeds_per_query: int = 0
    context_tokens: int = 0
    right: tuple[int, ...] = ()
    returns_ids: bool = True
    speed_s: float = 0.02
    phase: str | None = "measured"


PLANS = (
    Plan("long_context", context_tokens=1400, right=(0, 1, 2, 4, 5, 9)),
    Plan("bm25", context_tokens=420, right=(0, 2, 4, 5, 9)),
    Plan("embedrag", 0, 1, 1, 430, (0, 1, 4, 5)),
    Plan("mem0", 2, 3, 1, 260, (0, 9), returns_ids=False),
    Plan("no_memory", right=(9,)),
    Plan("oracle_evidence", context_tokens=60, right=(0, 1, 2, 3, 4, 5, 6, 9)),
)
REFERENCES = ("no_memory", "oracle_evidence")

QUESTIONS = (
    *(
        ("current", f"Which city does Ana live in, as of month {n}?", f"Lyon {n}", f"Turin {n}")
        for n in range(QUESTION_COUNT - 1)
    ),
    ("abstention", "What is Ana's shoe size?", "", ""),
)


@dataclass
class RunBuilder:
    """Writes rows with a running clock."""

    rows: list[Row] = field(default_factory=list)
    now: float = 0.0
    serial: int = 0

    def call(self, plan: Plan, unit: str | None, phase: str | None, **changes: Any) -> Call:
        self.serial += 1
        bucket = "harness" if plan.name in REFERENCES else "measured"
        call = new_call(
            f"c{self.serial:04d}",
            **{
                "scope": f"{plan.name}-{HISTORY}",
                "system": plan.name,
                "unit": unit,
                "phase": phase,
                "bucket": bucket,
                "start_s": self.now,
            }
            | changes,
        )
        if call.outcome == "ok" and call.endpoint == "chat" and call.input_tokens is not None:
            call = replace(call, engine=engine_truth(call))
        self.now += call.latency_s
        self.rows += [begin_of(call), call]
        return call

    def embed(self, plan: Plan, unit: str, phase: str, kind: str, sequences: int = 1) -> Call:
        return self.call(
            plan,
            unit,
            phase,
            endpoint="embedding",
            kind=kind,
            stage="store" if kind == "embed-write" else "retrieve",
            model="minilm-l6",
            latency_s=0.012,
            ttft_s=None,
            input_tokens=24 * sequences,
            uncached_tokens=24 * sequences,
            cache_read_tokens=0,
            output_tokens=None,
            reasoning_tokens=None,
            own_input_tokens=24 * sequences,
            own_output_tokens=None,
            sequences=sequences,
            finish_reason=None,
            max_tokens=None,
            seed=None,
        )

    def window(self, plan: Plan, unit: str | None, phase: str | None, since: float) -> None:
        self.now += plan.speed_s
        busy = self.now - since
        self.now += 0.05
        reference = plan.name in REFERENCES
        self.rows.append(
            Window(
                scope=f"{plan.name}-{HISTORY}",
                system=plan.name,
                history=HISTORY,
                phase=phase,
                bucket="harness" if reference else "measured",
                unit=unit,
                start_s=since,
                end_s=self.now,
                quiet_s=0.05,
                worker_cpu_s=None if reference else 0.01 + 0.02 * busy,
                engine_cpu_s=1.8 * busy,
                gateway_cpu_s=0.001,
                worker_wait_s=0.0,
                engine_wait_s=0.01,
                energy_j=None,
                energy_source="none",
                energy_scope=None,
            )
        )
        self.now += 0.01


def construct(run: RunBuilder, plan: Plan, index: int, unit: str) -> None:
    since = run.now
    if plan.extract:
        cap = {"finish_reason": "length", "output_tokens": 256} if index == 2 else {}
        run.call(plan, unit, "construction", input_tokens=900, uncached_tokens=880, **cap)
        run.call(plan, unit, "construction", kind="decide", input_tokens=500, uncached_tokens=480)
    if plan.extract and index == 1:
        _retried(run, plan, unit)
    for _ in range(plan.embeds_per_unit):
        run.embed(plan, unit, "construction", "embed-write", 4 if plan.name == "embedrag" else 1)
    lost = 1 if plan.extract and index == 2 else 0
    added = 3 if plan.extract else 12
    counts = {"added": added, "updated": index if plan.extract else 0, "deleted": 0, "lost": lost}
    run.window(plan, unit, "construction", since)
    run.rows.append(
        Unit(
            scope=f"{plan.name}-{HISTORY}",
            system=plan.name,
            history=HISTORY,
            unit=unit,
            index=index,
            status="ok",
            construct_s=run.now - since,
            source_chars=1180,
            source_tokens=262,
            store_version=index + 1,
            visible_s=None,
            note="reply was not JSON: 1 fact dropped" if lost else None,
            **counts,
        )
    )


def _retried(run: RunBuilder, plan: Plan, unit: str) -> None:
    """A 429, then success: two attempts, one logical call, tokens of the first unknown."""
    logical = "Lretry"
    unknown = dict.fromkeys(
        ("input_tokens", "uncached_tokens", "cache_read_tokens", "cache_write_tokens"), None
    )
    same = {"logical_id": logical, "request_hash": "same body"}
    nothing = {"output_tokens": None, "ttft_s": None, "reasoning_tokens": None}
    failed = {"status": 429, "outcome": "http_error", "error": "rate limit", "latency_s": 0.1}
    run.call(plan, unit, "construction", **same, **failed, **unknown, **nothing)
    run.call(plan, unit, "construction", **same, attempt=1, retry_count=1)


def ask(run: RunBuilder, plan: Plan, number: int) -> None:
    qid = f"q{number}"
    reference = plan.name in REFERENCES
    since = run.now
    if not reference:
        for _ in range(plan.embeds_per_query):
            run.embed(plan, qid, "retrieval", "embed-query")
        run.window(plan, qid, "retrieval", since)
    retrieval_s = None if reference else run.now - since
    since = run.now
    tokens = 60 + plan.context_tokens
    run.call(
        plan,
        qid,
        "generation",
        kind="answer",
        stage="generate",
        traffic_class="interactive",
        input_tokens=tokens,
        uncached_tokens=tokens,
        cache_read_tokens=0,
        own_input_tokens=tokens - 20,
        latency_s=0.4 + tokens / 2000,
    )
    run.window(plan, qid, "generation", since)
    run.rows.append(_query(plan, number, qid, retrieval_s, run.now - since))


def _query(
    plan: Plan, number: int, qid: str, retrieval_s: float | None, generation_s: float
) -> Query:
    category, question, gold, stale = QUESTIONS[number]
    right = number in plan.right
    if category == "abstention":
        answer = "It is not mentioned." if right else "Size 38."
    else:
        answer = f"She lives in {gold}." if right else f"She lives in {stale}."
    texts = () if plan.name == "no_memory" else (f"Ana moved to {gold}. {HOSTILE}",)
    if plan.name == "mem0" and not right:
        texts = (f"User lives in {stale}",)
    failed = plan.name == "mem0" and number == 8
    return Query(
        scope=f"{plan.name}-{HISTORY}",
        system=plan.name,
        history=HISTORY,
        question_id=qid,
        category=category,
        question=question + (f" {HOSTILE}" if number == 0 else ""),
        golds=(gold,) if gold else (),
        stale=(stale,) if stale else (),
        abstain=category == "abstention",
        evidence=(f"s2:{number}",) if gold else (),
        evidence_texts=(f"Ana moved to {gold}.",) if gold else (),
        status="failed" if failed else "ok",
        answer=None if failed else answer + (f" {HOSTILE}" if number == 1 else ""),
        retrieved_ids=(f"s2:{number}", "s1:0") if plan.returns_ids and texts else None,
        retrieved_texts=texts,
        k=10,
        overflow=False,
        cut_tokens=0,
        context_tokens=plan.context_tokens,
        retrieval_s=retrieval_s,
        generation_s=generation_s,
        version_read=4,
        native_answer=False,
    )


def build_rows() -> list[Row]:
    run = RunBuilder()
    for plan in PLANS:
        scope = f"{plan.name}-{HISTORY}"
        if plan.name not in REFERENCES:
            for index, unit in enumerate(UNITS):
                construct(run, plan, index, unit)
            size = {"mem0": 210_000, "embedrag": 96_000}.get(plan.name, 9_000)
            stores = {"store": size} | ({"history.db": 40_960} if plan.extract else {})
            for store, bytes_ in stores.items():
                run.rows.append(
                    Footprint(scope, plan.name, HISTORY, store, bytes_, at="constructed")
                )
        for number in range(QUESTION_COUNT):
            ask(run, plan, number)
        run.rows.append(Sample(run.now, "engine", 11, run.now, 700_000_000, *[None] * 5, 4))
    run.rows.append(
        Failure(
            "mem0-ana", "mem0", HISTORY, "answer", "q8", "timeout", f"no reply {HOSTILE}", None, 9.0
        )
    )
    return run.rows


Doctor = Callable[[list[Row]], list[Row]]


def write_run(
    folder: Path, doctor: Doctor | None = None, changes: dict[str, Any] | None = None
) -> Path:
    """Write the run to `folder`, its rows passed through `doctor` and its manifest changed."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = build_rows()
    rows = doctor(rows) if doctor else rows
    lines = [json.dumps(to_json(row)) for row in rows]
    text = "".join(f"{line}\n" for line in lines)
    (folder / "journal.jsonl").write_text(text, encoding="utf-8")
    (folder / "manifest.json").write_text(json.dumps(manifest() | (changes or {})))
    return folder


def edit(match: Callable[[Row], bool], **changes: Any) -> Doctor:
    """Doctor that changes the first row for which `match` is true; there must be one."""

    def doctor(rows: list[Row]) -> list[Row]:
        index = next(i for i, row in enumerate(rows) if match(row))
        return [*rows[:index], replace(rows[index], **changes), *rows[index + 1 :]]

    return doctor


def insert(row: Row) -> Doctor:
    return lambda rows: [*rows, row]
