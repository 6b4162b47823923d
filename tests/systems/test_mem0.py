"""Mem0 as it ships: calls, events, stores. Run with its environment installed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentmem.gateway.kinds import classify
from agentmem.memory import Limits, Retrieved, Turn, Unit
from agentmem.sandbox.client import Worker
from agentmem.sandbox.failure import WorkerFailure
from tests.systems.mem0_bench import (
    LIMITS,
    READY,
    REASON,
    SPEC,
    act,
    actions,
    change,
    endpoints,
    facts,
    known,
    opened,
    unit,
    worker,
)
from tests.systems.scripted import ScriptedModels, Seen

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(not READY, reason=REASON)]

QUESTION = "Who lives in Lisbon and likes what"


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedModels]:
    monkeypatch.setenv("OPENROUTER_API_KEY", "must not reach the worker")
    with ScriptedModels() as running:
        yield running


@pytest.fixture
def mem0(models: ScriptedModels, tmp_path: Path) -> Iterator[Worker]:
    made = opened(models, tmp_path / "store")
    yield made
    assert made.last is not None
    assert made.last.blocked == 0
    made.close()


def add(mem0: Worker, models: ScriptedModels, number: int, *texts: str, user: str = "ana") -> None:
    models.script(facts(*texts), actions(*(act("ADD", text) for text in texts)))
    assert mem0.construct(unit(number, "text", user)).added == len(texts)


def texts_of(mem0: Worker, user: str, question: str = QUESTION) -> list[str]:
    return [entry.text for entry in mem0.retrieve(user, question, 10).entries]


def assert_same(found: Retrieved, before: Retrieved) -> None:
    """Equal but for the last bits of scores: Qdrant computes them from reloaded vectors."""
    assert [e.text for e in found.entries] == [e.text for e in before.entries]
    assert [e.score for e in found.entries] == pytest.approx([e.score for e in before.entries])
    assert found.version_read == before.version_read
    assert len(found.entries) == 2


def kinds(seen: list[Seen], phase: str) -> list[str]:
    return [
        classify(
            SPEC.fingerprints,
            "embedding" if s.embeds else "chat",
            phase,  # type: ignore[arg-type]
            "measured",
            s.texts,
        )[1]
        for s in seen
    ]


def test_calls_follow_the_trace(mem0: Worker, models: ScriptedModels) -> None:
    models.script(facts())
    stored = mem0.construct(unit(1, "Hello."))
    assert models.trace() == "c"
    assert (stored.added, stored.lost, stored.store_version, stored.visible_at) == (0, 0, 0, None)

    models.script(
        facts("Lives in Lisbon", "Has a dog", "Likes tea"),
        actions(act("ADD", "Lives in Lisbon"), act("ADD", "Has a beagle"), act("ADD", "Likes tea")),
    )
    stored = mem0.construct(unit(2, "I live in Lisbon, have a beagle and like tea."))
    assert models.trace() == "ceeece"
    assert kinds(models.seen, "construction") == [
        "extract",
        *["embed-write"] * 3,
        "decide",
        "embed-write",
    ]
    assert [s.body["input"] for s in models.seen if s.embeds][-1] == ["Has a beagle"]
    assert (stored.added, stored.lost, stored.store_version) == (3, 0, 3)
    assert stored.visible_at is not None and stored.visible_at > 0

    models.script()
    found = mem0.retrieve("ana", "Who lives in Lisbon", 2)
    assert models.trace() == "e"
    assert kinds(models.seen, "retrieval") == ["embed-query"]
    assert len(found.entries) == 2 and found.version_read == 3
    assert found.entries[0].text == "Lives in Lisbon"
    assert found.entries[0].source_ids is None
    scores = [entry.score for entry in found.entries]
    assert scores == sorted(scores, reverse=True)  # type: ignore[type-var]

    models.script()
    mem0.flush()
    mem0.forget("ana")
    assert models.trace() == ""


def test_requests_carry_the_limits(mem0: Worker, models: ScriptedModels) -> None:
    models.script(facts("Likes tea"), actions(act("ADD", "Likes tea")))
    mem0.construct(unit(1, "I like tea."))
    for seen in models.seen:
        assert seen.headers["x-stainless-read-timeout"] == "30.0"
        assert "dimensions" not in seen.body
    chats = [seen.body for seen in models.seen if not seen.embeds]
    assert [body["max_tokens"] for body in chats] == [200, 200]
    assert [body["temperature"] for body in chats] == [0.0, 0.0]
    assert {body["response_format"]["type"] for body in chats} == {"json_object"}
    assert not any(body.get("stream") for body in chats)


def test_events_are_counted_and_done(mem0: Worker, models: ScriptedModels) -> None:
    add(mem0, models, 1, "Lives in Lisbon", "Has a dog")
    models.script(
        facts("Lives in Porto", "Dog died"),
        change(
            ("UPDATE", "Lives in Lisbon", "Lives in Porto"), ("DELETE", "Has a dog", "Has a dog")
        ),
    )
    stored = mem0.construct(unit(2, "I moved to Porto, my dog died."))
    assert models.trace() == "ceec"
    assert (stored.added, stored.updated, stored.deleted, stored.lost) == (0, 1, 1, 0)
    assert stored.store_version == 4
    assert texts_of(mem0, "ana") == ["Lives in Porto"]

    models.script(facts("Home is Porto"), change(("NONE", "Lives in Porto", "Lives in Porto")))
    stored = mem0.construct(unit(3, "My home is Porto."))
    assert (stored.added, stored.updated, stored.deleted, stored.lost) == (0, 0, 0, 0)
    assert (stored.store_version, stored.visible_at, stored.note) == (4, None, None)
    assert texts_of(mem0, "ana") == ["Lives in Porto"]


def test_users_of_one_store_are_apart(mem0: Worker, models: ScriptedModels) -> None:
    add(mem0, models, 1, "Ana lives in Lisbon")
    models.script(facts("Bo lives in Lisbon"), actions(act("ADD", "Bo lives in Lisbon")))
    mem0.construct(unit(2, "I live in Lisbon.", user="bo"))
    assert known(models.seen[2]) == []
    assert texts_of(mem0, "ana") == ["Ana lives in Lisbon"]
    assert texts_of(mem0, "bo") == ["Bo lives in Lisbon"]
    assert texts_of(mem0, "nobody") == []
    assert mem0.forget("ana") == 1
    assert texts_of(mem0, "ana") == []
    assert texts_of(mem0, "bo") == ["Bo lives in Lisbon"]


def test_a_store_reopens_with_all_it_held(models: ScriptedModels, tmp_path: Path) -> None:
    first = opened(models, tmp_path / "store")
    add(first, models, 1, "Lives in Lisbon", "Likes tea")
    before = first.retrieve("ana", QUESTION, 10)
    size = first.footprint()
    first.close()
    again = opened(models, tmp_path / "store")
    assert_same(again.retrieve("ana", QUESTION, 10), before)
    assert again.footprint() == size
    add(again, models, 2, "Has a dog")
    assert again.retrieve("ana", "dog", 1).version_read == 3
    assert len(texts_of(again, "ana")) == 3
    again.close()


def test_a_snapshot_of_an_open_store_is_whole(models: ScriptedModels, tmp_path: Path) -> None:
    original = opened(models, tmp_path / "store")
    add(original, models, 1, "Lives in Lisbon", "Likes tea")
    before = original.retrieve("ana", QUESTION, 10)
    original.snapshot(tmp_path / "snapshot")
    add(original, models, 2, "Has a dog")
    copy = opened(models, tmp_path / "snapshot")
    assert_same(copy.retrieve("ana", QUESTION, 10), before)
    add(copy, models, 3, "Has a cat")
    assert len(texts_of(copy, "ana")) == 3
    assert "Has a cat" not in texts_of(original, "ana")
    copy.close()
    original.close()


def test_forgetting_leaves_nothing_behind(mem0: Worker, models: ScriptedModels) -> None:
    add(mem0, models, 1, "Lives in Lisbon", "Likes marzipan")
    models.script(facts("Lives in Porto"), change(("UPDATE", "Lives in Lisbon", "Lives in Porto")))
    mem0.construct(unit(2, "I moved to Porto."))
    add(mem0, models, 3, "Has a dog")
    version = mem0.retrieve("ana", "dog", 1).version_read
    assert mem0.forget(unit_ids=("u2",)) == 1  # u2 rewrote what u1 had written
    assert sorted(texts_of(mem0, "ana")) == ["Has a dog", "Likes marzipan"]
    assert residue(mem0.store_dir, "Lisbon", "Porto") == []
    assert residue(mem0.store_dir, "marzipan") != []
    assert mem0.forget("ana") == 2
    assert residue(mem0.store_dir, "marzipan", "Has a dog", "ana", "u1") == []
    after = mem0.retrieve("ana", "dog", 1)
    assert after.entries == () and after.version_read == version + 3  # type: ignore[operator]
    add(mem0, models, 4, "Has a cat")
    assert texts_of(mem0, "ana") == ["Has a cat"]
    with pytest.raises(WorkerFailure, match="a user or unit ids"):
        mem0.forget()


def residue(store: Path, *words: str) -> list[str]:
    """Words that occur in any file of the store."""
    blobs = [path.read_bytes() for path in store.rglob("*") if path.is_file()]
    return [word for word in words if any(word.encode() in blob for blob in blobs)]


def test_the_footprint_is_the_files(mem0: Worker, models: ScriptedModels) -> None:
    empty = mem0.footprint()
    assert set(empty) == set(SPEC.stores) and min(empty.values()) > 0
    add(mem0, models, 1, *(f"Fact number {i}" for i in range(40)))
    full = mem0.footprint()
    assert full["qdrant"] > empty["qdrant"] and full["history"] > empty["history"]
    files = [path for path in mem0.store_dir.rglob("*") if path.is_file()]
    ours = mem0.store_dir / "units.jsonl"
    assert sum(full.values()) == sum(path.stat().st_size for path in files if path != ours)


def test_two_runs_send_the_same_bytes(models: ScriptedModels, tmp_path: Path) -> None:
    runs = []
    for name in ("one", "two"):
        mem0 = opened(models, tmp_path / name)
        sent = []
        add(mem0, models, 1, "Lives in Lisbon", "Likes tea")
        sent += [seen.raw for seen in models.seen]
        models.script(
            facts("Lives in Porto"), change(("UPDATE", "Lives in Lisbon", "Lives in Porto"))
        )
        mem0.construct(unit(2, "I moved to Porto."))
        texts_of(mem0, "ana")
        runs.append(sent + [seen.raw for seen in models.seen])
        mem0.close()
    assert len(runs[0]) == 4 + 3 + 1
    assert runs[0] == runs[1]


@pytest.mark.slow
def test_the_prompt_shows_one_date_in_every_process(models: ScriptedModels, tmp_path: Path) -> None:
    prompts = []
    for _ in range(2):
        mem0 = opened(models, tmp_path / "store")
        models.script(facts())
        mem0.construct(unit(1, "Hello."))
        prompts.append(models.seen[0].texts)
        mem0.close()
    assert "Today's date is 2024-01-01." in prompts[0][0]
    assert prompts[0] == prompts[1]


def test_a_unit_becomes_dated_messages(mem0: Worker, models: ScriptedModels) -> None:
    turns = (
        Turn("1", "Ana", "user", "Hi Bo.", "2023-05-08T13:56:00"),
        Turn("2", "Bo", "assistant", "Hi Ana.", "2023-05-08T13:56:00"),
        Turn("3", "assistant", "assistant", "How can I help?", "2023-05-09"),
        Turn("4", "user", "user", "Not at all.", None),
    )
    models.script(facts())
    mem0.construct(Unit("u1", "ana", "unused", turns, turns[0].at))
    assert models.seen[0].texts[1] == (
        "Input:\nuser: [8 May 2023, 13:56] Ana: Hi Bo.\nuser: Bo: Hi Ana.\n"
        "assistant: [9 May 2023] How can I help?\nuser: Not at all.\n"
    )
    models.script(facts())
    mem0.construct(Unit("u2", "ana", "A document.\nTwo lines."))
    assert models.seen[0].texts[1] == "Input:\nuser: A document.\nTwo lines.\n"


def test_roles_may_be_sent_as_given(models: ScriptedModels, tmp_path: Path) -> None:
    given = dataclasses.replace(LIMITS, options={"roles": "given"})
    mem0 = opened(models, tmp_path / "store", given)
    models.script(facts())
    mem0.construct(Unit("u", "ana", "", (Turn("2", "Bo", "assistant", "Hi Ana."),)))
    assert models.seen[0].texts[1] == "Input:\nassistant: Bo: Hi Ana.\n"
    mem0.close()


@pytest.mark.parametrize("options", [{"roles": "mine"}, {"role": "given"}])
def test_a_wrong_option_is_refused(
    models: ScriptedModels, tmp_path: Path, options: dict[str, str]
) -> None:
    mem0 = worker(models, tmp_path / "store")
    with pytest.raises(WorkerFailure, match=r"mem0.*(roles|given)"):
        mem0.open(endpoints(models), Limits(options=options))
    mem0.close()


def test_a_cap_that_upstream_does_not_send_is_told(models: ScriptedModels, tmp_path: Path) -> None:
    mem0 = worker(models, tmp_path / "store")
    mem0.open(endpoints(models, chat_model="gpt-5-like"), LIMITS)
    models.script(facts())
    stored = mem0.construct(unit(1, "Hello."))
    assert "max_tokens" not in models.seen[0].body
    assert stored.note is not None and stored.note.startswith("no token cap sent")
    mem0.close()
