"""Names of workloads and how each is loaded. A loader's module is imported when it is asked for."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from agentmem.errors import UsageError, nearest
from agentmem.workloads.base import Conversation, Question, Workload, WorkloadSpec
from agentmem.workloads.tokens import reference
from agentmem.workloads.units import cut

LOADERS: dict[str, str] = {
    "generated": "agentmem.workloads.generator.load",
    "locomo": "agentmem.workloads.locomo",
    "longmemeval": "agentmem.workloads.longmemeval",
    "factconsolidation": "agentmem.workloads.factconsolidation",
    "conversation": "agentmem.workloads.user",
}
"""Workload name -> module with `OPTIONS: frozenset[str]` and `load(spec, counter) -> Loaded`."""

COMMON = frozenset({"unit", "chunk_tokens", "tokenizer"})
"""Options that every workload takes."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a loader hands back: conversations and what they were made from."""

    conversations: tuple[Conversation, ...]
    sources: Mapping[str, Any]
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Values that the loader settled itself (defaults it filled in)."""


def loader(name: str) -> ModuleType:
    """The module of a workload; UsageError with the nearest name for an unknown one."""
    if name not in LOADERS:
        raise UsageError(f"unknown workload {name!r}: {nearest(name, list(LOADERS))}")
    return importlib.import_module(LOADERS[name])


def build(spec: WorkloadSpec) -> Workload:
    """Load or generate the workload and cut it into ingest units.

    Raises UsageError for an unknown name or an option that this workload does not have, and
    DataError for data that is missing or malformed.
    """
    module = loader(spec.name)
    options: frozenset[str] = module.OPTIONS | COMMON
    for option in sorted(spec.given() - options):
        raise UsageError(
            f"workload {spec.name!r} has no option {option!r}; it takes: "
            + ", ".join(sorted(options))
        )
    counter = reference(spec.tokenizer)
    loaded: Loaded = module.load(spec, counter)
    values = {name: getattr(spec, name) for name in sorted(options)} | dict(loaded.params)
    if spec.unit != "chunk":
        values.pop("chunk_tokens")
    histories = tuple(cut(conversation, spec, counter) for conversation in loaded.conversations)
    return Workload(spec.name, values, histories, loaded.sources)


def pick_questions(questions: tuple[Question, ...], limit: int | None) -> tuple[Question, ...]:
    """At most `limit` questions: one of each category in turn, first come first, in file order."""
    if limit is None or limit >= len(questions):
        return questions
    rank: dict[str, int] = {}
    keyed: list[tuple[int, int]] = []
    for index, question in enumerate(questions):
        turn = rank.get(question.category, 0)
        rank[question.category] = turn + 1
        keyed.append((turn, index))
    chosen = sorted(index for _, index in sorted(keyed)[:limit])
    return tuple(questions[index] for index in chosen)
