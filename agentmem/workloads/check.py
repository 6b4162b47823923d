"""Self-checks of a workload: does its own evidence give its golds, and nothing else give them?"""

from __future__ import annotations

from collections import Counter as Tally
from dataclasses import dataclass

from agentmem.workloads.base import Workload, WorkloadSpec, content_hash
from agentmem.workloads.registry import build
from agentmem.workloads.tokens import reference


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One check: what, the measured value in words, and whether it holds."""

    name: str
    value: str
    ok: bool


def share(name: str, good: int, whole: int) -> CheckRow:
    """A check that holds when all of `whole` are good. Nothing to check holds and says so."""
    return CheckRow(name, f"{good} of {whole}" if whole else "none to check", good == whole)


def check(spec: WorkloadSpec) -> list[CheckRow]:
    """All checks that apply to the workload; builds it once, a generated one twice."""
    workload = build(spec)
    rows = check_built(workload)
    if spec.name == "generated":
        from agentmem.workloads.generator.check import check_generated

        again = content_hash(build(spec)) == content_hash(workload)
        rows.append(CheckRow("same bytes when built again", "yes" if again else "no", again))
        rows += check_generated(spec, reference(spec.tokenizer))
    return rows


def check_built(workload: Workload) -> list[CheckRow]:
    """What must hold for any workload."""
    questions = [q for history in workload.histories for q in history.questions]
    resolved = unique = 0
    for history in workload.histories:
        ids = [turn.source_id for unit in history.units for turn in unit.turns]
        known = set(ids)
        resolved += sum(known.issuperset(question.evidence) for question in history.questions)
        # A chunk border may split a turn, which then shows up in two units.
        unique += workload.params.get("unit") == "chunk" or len(known) == len(ids)
    repeated = [i for i, n in Tally(q.question_id for q in questions).items() if n > 1]
    answered = sum(bool(q.golds) or q.abstain for q in questions)
    texts = sum(bool(unit.text.strip()) for h in workload.histories for unit in h.units)
    return [
        share("evidence ids resolve", resolved, len(questions)),
        share("source ids unique in their history", unique, len(workload.histories)),
        share("question ids unique", len(questions) - len(repeated), len(questions)),
        share("questions with a gold or to be declined", answered, len(questions)),
        share("units with text", texts, sum(len(h.units) for h in workload.histories)),
    ]
