"""What Mem0 swallows and what it raises, case by case, as README.md of the system says."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from agentmem.sandbox.client import Worker
from agentmem.sandbox.failure import WorkerFailure
from tests.systems.mem0_bench import READY, REASON, act, actions, facts, opened, unit
from tests.systems.scripted import Reply, ScriptedModels

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(not READY, reason=REASON)]
NUMBERS = itertools.count()
TWO = facts("Likes tea", "Likes jam")
SECRET = "quince"


@pytest.fixture(scope="module")
def models() -> Iterator[ScriptedModels]:
    with ScriptedModels() as running:
        yield running


@pytest.fixture(scope="module")
def mem0(models: ScriptedModels, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    made = opened(models, tmp_path_factory.mktemp("losses") / "store")
    yield made
    made.close()


EXTRACTION: dict[str, tuple[Reply, int]] = {
    "not JSON": ("{'facts': [", 1),
    "prose": ("I cannot do that.", 1),
    "empty": ("", 1),
    "cut off at the cap": (('{"facts": ["Likes t', "length"), 1),
    "without facts": ({"fact": ["Likes tea"]}, 1),
    "a list": ('["Likes tea"]', 1),
    "facts a number": ({"facts": 5}, 1),
    "no facts": (facts(), 0),
    "facts null": ({"facts": None}, 0),
    "an empty text as fact": (facts(""), 0),
    "a shapeless fact": (facts({"a": SECRET}), 1),
    "two shapeless facts": (facts({"a": 1}, {"fact": ""}), 2),
}


@pytest.mark.parametrize("case", EXTRACTION)
def test_extraction(case: str, mem0: Worker, models: ScriptedModels) -> None:
    reply, lost = EXTRACTION[case]
    models.script(reply)
    stored = mem0.construct(unit(next(NUMBERS), "text", f"user of {case}"))
    assert models.trace() == "c"
    assert (stored.added, stored.updated, stored.deleted) == (0, 0, 0)
    assert stored.lost == lost
    assert (stored.note is None) == (lost == 0)
    assert SECRET not in (stored.note or "")
    assert ("extract reply hit the token cap" in (stored.note or "")) == (case.startswith("cut"))


DECISION: dict[str, tuple[Reply, int, int]] = {
    "not JSON": ('{"memory": [', 2, 0),
    "empty": ("", 2, 0),
    "blank": (" \n", 2, 0),
    "cut off at the cap": (('{"memory": [{"id": "0", "text": "Li', "length"), 2, 0),
    "a list": ([act("ADD", "Likes tea")], 2, 0),  # type: ignore[dict-item]
    "null": ("null", 2, 0),
    "without memory": ({"memories": [act("ADD", "Likes tea")]}, 2, 0),
    "memory a text": ({"memory": "Likes tea and jam"}, 2, 0),
    "memory null": ({"memory": None}, 2, 0),
    "memory an object": ({"memory": act("ADD", "Likes tea")}, 2, 0),
    "nothing decided": (actions(), 2, 0),
    "refused": (400, 2, 0),
    "UPDATE of an unknown id": (actions(act("UPDATE", SECRET, "7")), 1, 0),
    "UPDATE of a number as id": (actions({"id": 0, "event": "UPDATE", "text": "Likes"}), 1, 0),
    "DELETE of an unknown id": (actions(act("DELETE", SECRET, "7")), 1, 0),
    "an unknown event": (actions(act("add", "Likes tea")), 1, 0),
    "no event": (actions({"id": "0", "text": "Likes tea"}), 1, 0),
    "ADD without a text": (actions(act("ADD"), act("ADD", "Likes jam")), 1, 1),
    "texts for actions": (actions("Likes tea", "Likes jam"), 2, 0),
    "a list for a text": (actions({"id": "0", "event": "ADD", "text": ["Likes tea"]}), 1, 0),
    "one of three fails": (
        actions(act("ADD", "Likes tea"), act("UPDATE", "Likes jam", "9"), act("ADD", "Likes jam")),
        1,
        2,
    ),
    "NONE alone": (actions(act("NONE", "Likes tea")), 2, 0),
    "NONE without a text": (actions(act("NONE")), 2, 0),
    "NONE beside ADD": (actions(act("NONE", "Likes tea"), act("ADD", "Likes jam")), 0, 1),
    "fewer actions than facts": (actions(act("ADD", "Likes tea")), 0, 1),
    "fenced": ('```json\n{"memory": [{"id": "0", "event": "ADD", "text": "Tea"}]}\n```', 0, 1),
    "in prose": ('Sure: {"memory": [{"id": "0", "event": "ADD", "text": "Tea"}]} Done.', 0, 1),
}


@pytest.mark.parametrize("case", DECISION)
def test_decision(case: str, mem0: Worker, models: ScriptedModels) -> None:
    reply, lost, added = DECISION[case]
    models.script(TWO, _body(reply))
    user = f"user of {case}"
    stored = mem0.construct(unit(next(NUMBERS), "text", user))
    assert models.trace().startswith("ceec")
    assert (stored.added, stored.updated, stored.deleted, stored.lost) == (added, 0, 0, lost)
    assert (stored.note is None) == (lost == 0)
    assert SECRET not in (stored.note or "") and "Likes" not in (stored.note or "")
    assert ("decide reply hit the token cap" in (stored.note or "")) == (case.startswith("cut"))
    assert len(mem0.retrieve(user, "Likes tea", 10).entries) == added


def _body(reply: Any) -> Any:
    """A bare list is a text to the script: send it as JSON."""
    return json.dumps(reply) if isinstance(reply, list) else reply


@pytest.mark.parametrize("none", [act("NONE", "Likes tea"), act("NONE")], ids=["text", "bare"])
def test_known_facts_are_no_loss(
    none: dict[str, Any], mem0: Worker, models: ScriptedModels
) -> None:
    user = f"knows {none}"
    models.script(TWO, actions(act("ADD", "Likes tea"), act("ADD", "Likes jam")))
    assert mem0.construct(unit(next(NUMBERS), "text", user)).added == 2
    models.script(TWO, actions(none))
    stored = mem0.construct(unit(next(NUMBERS), "text", user))
    assert (stored.added, stored.lost, stored.note) == (0, 0, None)


def test_repeated_facts_are_one_loss(mem0: Worker, models: ScriptedModels) -> None:
    models.script(facts("Likes tea", "Likes tea", {"text": "Likes tea"}), "")
    stored = mem0.construct(unit(next(NUMBERS), "text", "repeats"))
    assert models.trace() == "ceeec"
    assert stored.lost == 1


def test_a_text_of_facts_goes_in_letter_by_letter(mem0: Worker, models: ScriptedModels) -> None:
    models.script({"facts": "ab"}, actions(act("ADD", "a"), act("ADD", "b")))
    stored = mem0.construct(unit(next(NUMBERS), "text", "letters"))
    assert models.trace() == "ceec"
    assert (stored.added, stored.lost) == (2, 0)
    assert stored.note is not None and "letter by letter" in stored.note


def test_a_failing_decision_call_is_a_loss(mem0: Worker, models: ScriptedModels) -> None:
    models.script(TWO, 500, 500, 500)
    stored = mem0.construct(unit(next(NUMBERS), "text", "fails"))
    assert models.trace() == "ceeccc"
    retries = [s.headers["x-stainless-retry-count"] for s in models.seen if not s.embeds]
    assert retries == ["0", "0", "1", "2"]
    assert (stored.added, stored.lost) == (0, 2)
    assert stored.note == "2 lost: facts without a decision (Error in new memory actions response)"


def test_a_retry_that_works_is_none(mem0: Worker, models: ScriptedModels) -> None:
    models.script(TWO, 503, actions(act("ADD", "Likes tea")))
    stored = mem0.construct(unit(next(NUMBERS), "text", "retries"))
    assert models.trace() == "ceecc"
    assert (stored.added, stored.lost, stored.note) == (1, 0, None)


def test_an_action_whose_embedding_fails_is_a_loss(mem0: Worker, models: ScriptedModels) -> None:
    models.script(
        facts("Likes tea"),
        actions(act("ADD", "Likes green tea"), act("ADD", "Likes tea")),
        embed_faults=(False, True, True, True),
    )
    stored = mem0.construct(unit(next(NUMBERS), "text", "action fails"))
    assert models.trace() == "ceceee"
    assert (stored.added, stored.lost) == (1, 1)


@pytest.mark.parametrize(
    ("chat", "faults", "trace"),
    [
        ((500, 500, 500), (), "ccc"),
        ((400,), (), "c"),
        ((facts("Likes tea"),), (True, True, True), "ceee"),
    ],
    ids=["extraction fails", "extraction is refused", "embedding of a fact fails"],
)
def test_what_mem0_raises_is_raised(
    mem0: Worker, models: ScriptedModels, chat: tuple[Reply, ...], faults: tuple[bool], trace: str
) -> None:
    models.script(*chat, embed_faults=faults)
    with pytest.raises(WorkerFailure, match=r"construct: (InternalServer|BadRequest)Error") as info:
        mem0.construct(unit(next(NUMBERS), "text", "raises"))
    assert info.value.kind == "raised"
    assert models.trace() == trace
    models.script(facts("Likes tea"), actions(act("ADD", "Likes tea")))
    assert mem0.construct(unit(next(NUMBERS), "text", "after")).added == 1


def test_a_question_whose_embedding_fails_is_raised(mem0: Worker, models: ScriptedModels) -> None:
    models.script(embed_faults=(True, True, True))
    with pytest.raises(WorkerFailure, match="retrieve: InternalServerError"):
        mem0.retrieve("ana", "What?", 10)


def test_losses_of_one_unit_do_not_reach_the_next(mem0: Worker, models: ScriptedModels) -> None:
    models.script(TWO, "")
    assert mem0.construct(unit(next(NUMBERS), "text", "next")).lost == 2
    models.script(facts())
    stored = mem0.construct(unit(next(NUMBERS), "text", "next"))
    assert (stored.lost, stored.note) == (0, None)
