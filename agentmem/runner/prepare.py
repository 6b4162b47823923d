"""Everything that can fail before a second is measured: systems, models, workload, identity."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from agentmem.modelfiles.fetch import fetch
from agentmem.modelfiles.registry import MODELS
from agentmem.profile import Profile
from agentmem.runner.progress import Progress
from agentmem.sandbox.environment import Environment, ensure
from agentmem.sandbox.specs import SystemSpec, survey
from agentmem.workloads.base import Workload, WorkloadSpec
from agentmem.workloads.registry import build


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a run is made of, ready to go."""

    profile: Profile
    systems: tuple[SystemSpec, ...]
    """As listed; `runner.rounds` says who runs when."""
    environments: dict[str, Environment]
    workload: Workload


def choose(profile: Profile, progress: Progress) -> tuple[SystemSpec, ...]:
    """Specs of the profile's systems as listed; what else is found broken gets a line.

    UsageError for an unknown name, MemorySystemError for one that cannot be used.
    """
    known = survey()
    known.chosen(profile.options)
    chosen = tuple(known.chosen(profile.systems))
    for bad in known.broken:
        progress.note(f"left out: {bad.reason}")
    return chosen


def pull_models(names: Iterable[str], progress: Progress) -> None:
    """Fetch the pinned ones of the models a run needs; a path or a fetched one costs nothing."""
    for name in names:
        if name in MODELS:
            if (terms := MODELS[name].terms) is not None:
                progress.note(terms)
            fetch(name, on_progress=lambda what, _part: progress.note(what))


def prepare(profile: Profile, progress: Progress, models: Iterable[str]) -> Prepared:
    """Check, fetch and build; raises AgentMemError with one line that says what to do."""
    systems = choose(profile, progress)
    spec = WorkloadSpec.from_mapping(profile.workload)
    pull_models(models, progress)
    workload = build(spec)
    environments = {s.name: ensure(s, progress.note) for s in systems}
    return Prepared(profile, systems, environments, workload)


def system_row(spec: SystemSpec, env: Environment) -> dict[str, Any]:
    """The manifest's entry for a system."""
    upstream = spec.upstream
    return {
        "title": spec.title,
        "taxonomy": {"paradigm": spec.paradigm, **spec.taxonomy},
        "lock": env.lock_hash,
        "environment": spec.environment,
        "upstream": f"{upstream.package} {upstream.version or ''}".strip() if upstream else None,
        "fidelity": spec.fidelity,
        "passthrough": spec.passthrough,
        "stores_records": spec.stores_records,
        "native_answer": spec.native_answer,
        "overlap": spec.overlap,
        "code": spec.code_hash,
    }


def describe(workload: Workload) -> dict[str, Any]:
    """The manifest's entry for a workload."""
    return {
        "name": workload.name,
        "params": dict(workload.params),
        "histories": {
            h.history: {
                "units": len(h.units),
                "questions": len(h.questions),
                "source_tokens": h.source_tokens,
                "source_chars": h.source_chars,
            }
            for h in workload.histories
        },
    }
