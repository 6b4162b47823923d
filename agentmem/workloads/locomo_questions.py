"""LoCoMo's questions: golds as text, evidence ids mended, doubtful ones dropped and counted."""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentmem.memory import Turn
from agentmem.workloads.base import Conversation, Question
from agentmem.workloads.text import dated_line

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_EVIDENCE = re.compile(r"D:?(\d+):(\d+)")


@dataclass(frozen=True, slots=True)
class Audit:
    """What the audit says of one conversation's questions, by their index."""

    wrong: frozenset[int] = frozenset()
    citations: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Right evidence where the published one cites other turns."""


def audit_of(rows: list[dict[str, Any]], conversation_index: int) -> Audit:
    """The audit's rows for one conversation; ids read `locomo_<conversation>_qa<index>`."""
    wrong: set[int] = set()
    citations: dict[int, tuple[str, ...]] = {}
    prefix = f"locomo_{conversation_index}_qa"
    for row in rows:
        if not row["question_id"].startswith(prefix):
            continue
        index = int(row["question_id"].removeprefix(prefix))
        if row["error_type"] == "WRONG_CITATION":
            citations[index] = tuple(row["correct_evidence"])
        else:
            wrong.add(index)
    return Audit(frozenset(wrong), citations)


def read_questions(
    sample: dict[str, Any],
    full: Conversation,
    cut: Conversation,
    audit: Audit,
    wanted: frozenset[str],
    counts: Tally[str],
) -> tuple[Question, ...]:
    """Questions whose evidence lies within the sessions of `cut`, each once."""
    turns = {turn.source_id: turn for session in full.sessions for turn in session.turns}
    kept_ids = {turn.source_id for session in cut.sessions for turn in session.turns}
    shortened = len(cut.sessions) < len(full.sessions)
    seen: set[str] = set()
    questions: list[Question] = []
    for index, raw in enumerate(sample["qa"]):
        category = CATEGORIES[raw["category"]]
        # One question is asked as answerable and again as adversarial: the first one stands.
        twice = raw["question"] in seen
        seen.add(raw["question"])
        if category not in wanted:
            continue
        if index in audit.wrong or twice:
            counts["duplicate_questions_dropped" if twice else "wrong_golds_dropped"] += 1
            continue
        evidence = _evidence(audit.citations.get(index, raw["evidence"]), turns, counts)
        if shortened and (not evidence or not kept_ids.issuperset(evidence)):
            counts["questions_outside_the_sessions"] += 1
            continue
        questions.append(_question(f"{full.history}/q{index}", raw, category, evidence, turns))
    return tuple(questions)


def _evidence(
    raw: list[str] | tuple[str, ...], turns: Mapping[str, Turn], counts: Tally[str]
) -> tuple[str, ...]:
    """Ids that resolve, in the order of the conversation. `D8:6; D9:17` is two, `D30:05` is
    `D30:5`, `D:11:26` is `D11:26`; what resolves to no turn is dropped and counted."""
    found: set[str] = set()
    for item in raw:
        if item in turns:
            found.add(item)
            continue
        ids = [f"D{int(s)}:{int(t)}" for s, t in _EVIDENCE.findall(item)]
        good = [i for i in ids if i in turns]
        found.update(good)
        counts["evidence_ids_mended" if good else "evidence_ids_dropped"] += 1
    return tuple(sorted(found, key=list(turns).index))


def _question(
    question_id: str,
    raw: dict[str, Any],
    category: str,
    evidence: tuple[str, ...],
    turns: Mapping[str, Turn],
) -> Question:
    """Category 5 asks for what was never said: its evidence ids mark the trap, not an answer."""
    gold = str(raw["answer"]).strip() if "answer" in raw else None
    if category == "open-domain" and gold is not None:
        gold = gold.split(";")[0].strip()
    golds = () if gold is None else (gold,)
    if category == "adversarial":
        return Question(question_id, raw["question"].strip(), category, golds, abstain=True)
    texts = tuple(dated_line(turns[i]) for i in evidence)
    return Question(
        question_id,
        raw["question"].strip(),
        category,
        golds,
        evidence=evidence,
        evidence_texts=texts,
    )
