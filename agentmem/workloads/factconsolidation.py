"""FactConsolidation: a numbered list of facts, some contradicted later; the newest one wins.

It wins against world knowledge, by design. Read from `factconsolidation_6k.json`, or by `path` from
a file of the same form for another length. A turn is one fact, its id `fact-<serial>`.
"""

from __future__ import annotations

from typing import Any

from agentmem.errors import DataError
from agentmem.memory import Turn
from agentmem.workloads.base import Conversation, Question, Session, WorkloadSpec
from agentmem.workloads.data import find, read_json, sha256, wanted_categories
from agentmem.workloads.registry import Loaded, pick_questions
from agentmem.workloads.tokens import Counter

OPTIONS = frozenset({"path", "questions", "categories"})
FILE = "factconsolidation/factconsolidation_6k.json"
WHERE = (
    "it holds MemoryAgentBench's FactConsolidation as context, facts, official_sh_first40, "
    "official_mh_first40 and generated_sh_all_slots (docs/workloads.md)"
)
KEYS = {
    "single-hop": "official_sh_first40",
    "multi-hop": "official_mh_first40",
    "slot": "generated_sh_all_slots",
}
"""Category -> key in the file. `slot` asks for every (subject, relation), with stale values."""
DEFAULT = ("single-hop", "multi-hop")


def load(spec: WorkloadSpec, counter: Counter) -> Loaded:
    """The one history of the file."""
    path = find(spec, FILE, WHERE)
    data = read_json(path)
    missing = [key for key in ("context", "facts", *KEYS.values()) if key not in data]
    if missing:
        raise DataError(f"{path} is not FactConsolidation: it has no {', '.join(missing)}")
    wanted = wanted_categories(spec, tuple(KEYS)) if spec.categories else frozenset(DEFAULT)
    turns = _turns(data, str(path))
    texts = {turn.source_id: turn.text for turn in turns}
    slots = {slot["question"]: slot for slot in data[KEYS["slot"]]}
    questions = tuple(
        _question(path.stem, category, number, raw, slots, texts)
        for category in KEYS
        if category in wanted
        for number, raw in enumerate(data[KEYS[category]])
    )
    conversation = Conversation(
        path.stem,
        path.stem,
        (Session("facts", None, turns),),
        pick_questions(questions, spec.questions),
    )
    known = sum(bool(question.evidence) for question in questions)
    counts = {"facts": len(data["facts"]), "questions_with_known_evidence": known}
    sources = {"files": {path.name: sha256(path)}, "licence": "MIT", "counts": counts}
    return Loaded((conversation,), sources, {"categories": tuple(sorted(wanted))})


def _turns(data: dict[str, Any], where: str) -> tuple[Turn, ...]:
    """The lines of the context, which must be the heading and then the facts by serial."""
    heading, *lines = data["context"].split("\n")
    serials = [fact["serial"] for fact in data["facts"]]
    if [line.split(".", 1)[0] for line in lines] != [str(serial) for serial in serials]:
        raise DataError(f"{where}: the lines of context are not the serials of facts")
    turns = [Turn("heading", "", "user", heading)]
    turns += [
        Turn(f"fact-{serial}", "", "user", line)
        for serial, line in zip(serials, lines, strict=True)
    ]
    return tuple(turns)


def _question(
    history: str,
    category: str,
    number: int,
    raw: dict[str, Any],
    slots: dict[str, dict[str, Any]],
    texts: dict[str, str],
) -> Question:
    """Stale values and evidence are known where the question is that of a slot."""
    slot = slots.get(raw["question"], {}) if category != "multi-hop" else {}
    serials = slot.get("serials", [])
    evidence = (f"fact-{max(serials)}",) if serials else ()
    return Question(
        f"{history}/{raw.get('id', f'{category}-{number}')}",
        raw["question"],
        category,
        tuple(str(answer) for answer in raw["answers"]),
        tuple(str(value) for value in slot.get("stale", [])),
        evidence=evidence,
        evidence_texts=tuple(texts[key] for key in evidence),
    )
