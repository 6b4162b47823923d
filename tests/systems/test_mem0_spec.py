"""What can be checked of Mem0 without its environment: its row, its pins, its fingerprints."""

from __future__ import annotations

import re

from agentmem.sandbox.requirements import read_lock
from tests.systems.mem0_bench import FOLDER, SPEC


def test_the_taxonomy_row() -> None:
    assert SPEC.paradigm == "III.b consolidating"
    assert dict(SPEC.taxonomy) == {
        "agentic": "no",
        "construction_llm": "yes",
        "construction_embeds": "yes",
        "structured_records": "yes",
        "store": "dense fact store",
        "retrieval_llm": "no",
        "retrieval_flow": "fact top-k",
        "mutability": "consolidate (ADD / UPDATE / DELETE per fact)",
    }
    assert (SPEC.environment, SPEC.endpoints) == ("own", ("chat", "embed"))
    assert not SPEC.overlap and not SPEC.native_answer and SPEC.stores_records


def test_the_pins_are_whole() -> None:
    lock = read_lock(SPEC.requirements)
    assert lock.torch is None
    assert SPEC.upstream is not None
    assert lock.versions["mem0ai"] == SPEC.upstream.version == "1.0.11"
    assert len(lock.versions) == len(lock.hashed) == 34
    text = (FOLDER / "requirements.txt").read_text()
    assert re.findall(r"https?:|index-url|find-links", text) == []
    assert all(len(h) == 64 for h in re.findall(r"sha256:(\w+)", text))


def test_telemetry_is_off_before_the_import() -> None:
    assert SPEC.env == {"MEM0_TELEMETRY": "False", "MEM0_DIR": "{store}/home"}


def test_each_kind_of_call_has_a_fingerprint() -> None:
    kinds = {mark.kind: (mark.endpoint, mark.phase, mark.stage) for mark in SPEC.fingerprints}
    assert kinds == {
        "extract": ("chat", None, "construct"),
        "decide": ("chat", None, "construct"),
        "embed-write": ("embedding", "construction", "store"),
        "embed-query": ("embedding", "retrieval", "retrieve"),
    }
