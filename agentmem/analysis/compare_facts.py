"""What two runs do not have in common, and which comparisons that forbids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from agentmem.analysis.compare_metrics import FLOOR_S, GROUPS, Group
from agentmem.analysis.load import Run
from agentmem.records import PHASES, Contention

ALL = frozenset(GROUPS)
TIMES: frozenset[Group] = frozenset({"time", "cpu", "energy"})


@dataclass(frozen=True, slots=True)
class Differing:
    """One fact that is not the same in two runs, or that spoils a comparison by itself."""

    key: str
    a: str
    b: str
    blocks: frozenset[Group]
    """Groups that may not be compared because of it; empty: said, and no more."""
    where: str | None = None
    """`system.phase` it is about; None: everything."""

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        return f"{self.key}{place}: {self.a} / {self.b}"


def _params(run: Run, *names: str) -> Any:
    params = (run.manifest.get("workload") or {}).get("params") or {}
    found = {name: params[name] for name in names if params.get(name) is not None}
    return ", ".join(map(str, found.values())) or None


def _part(run: Run, table: str, *names: str) -> Any:
    found = run.manifest.get(table) or {}
    known = [str(found[n]) for n in names if found.get(n) is not None]
    return ", ".join(known) or None


def _data(run: Run) -> Any:
    """The hash of every unit and question; without one, their counts and sizes."""
    workload = run.manifest.get("workload") or {}
    return workload.get("data_hash") or workload.get("histories")


def _machine(run: Run) -> Any:
    names = ("cpu_model", "cpu", "usable_cores", "cores", "memory_bytes", "gpu")
    return _part(run, "machine", *names)


def _energy(run: Run) -> Any:
    return _part(run, "energy", "source", "scope", "w_per_core")


MUST_AGREE: dict[str, tuple[Callable[[Run], Any], frozenset[Group]]] = {
    "workload": (lambda run: _part(run, "workload", "name"), ALL),
    "unit": (lambda run: _params(run, "unit", "chunk_tokens"), ALL),
    "tokenizer": (lambda run: _params(run, "tokenizer"), ALL),
    "data": (_data, ALL),
    "model": (lambda run: _served(run, "engine", "model", "weights"), ALL),
    "embedder": (lambda run: _served(run, "embedder", "model", "dims"), ALL),
    "machine": (_machine, TIMES),
    "energy": (_energy, frozenset({"energy"})),
}
SPOILS = ("replay", "contention")
"""Barred by what one run is, not by a difference: times served from a recording, and times taken
while other work was in the way."""
ENGINE = "engine"
"""Which engine did the work, where that is not the model whose answers were given."""
ACROSS = (*MUST_AGREE, ENGINE, *SPOILS)
"""What `--across` may name: differences that are the point of the comparison."""


def differing(a: Run, b: Run) -> list[Differing]:
    """Everything that tells two runs apart, what forbids comparisons first."""
    found = [
        Differing(key, shown(fact(a)), shown(fact(b)), blocks)
        for key, (fact, blocks) in MUST_AGREE.items()
        if fact(a) != fact(b)
    ]
    found += _producers(a, b)
    found += _spoiled("replay", replayed(a), replayed(b), None)
    for system in (s for s in a.systems if s in b.systems):
        for room, phases in PHASES_OF.items():
            one, two = contended(a, system, phases), contended(b, system, phases)
            found += _spoiled("contention", one, two, f"{system}.{room}")
    return found + list(_stated(a, b))


def _served(run: Run, table: str, *names: str) -> Any:
    """Who gave the answers or vectors: of a replay through an engine, the recorded model."""
    if not through_engine(run):
        return _part(run, table, *names)
    served = (run.manifest.get("replay") or {}).get("served") or {}
    prefix = "embed_" if table == "embedder" else ""
    keys = [prefix + name for name in names]
    return ", ".join(str(served[k]) for k in keys if served.get(k) is not None) or None


def through_engine(run: Run) -> bool:
    """An engine was made to produce recorded replies: its times and tokens, another's answers."""
    return (run.manifest.get("replay") or {}).get("mode") == "through-engine"


def _producers(a: Run, b: Run) -> list[Differing]:
    """Times of two engines are comparable as little as ever; answers and calls are one model's."""
    one, two = _engine(a), _engine(b)
    if one == two or not (through_engine(a) or through_engine(b)):
        return []
    return [Differing(ENGINE, shown(one), shown(two), TIMES)]


def _engine(run: Run) -> str:
    parts = [_part(run, "engine", "model", "weights"), _part(run, "embedder", "model")]
    return ", ".join(part or "not stated" for part in parts)


def _spoiled(key: str, a: str | None, b: str | None, where: str | None) -> list[Differing]:
    blocks: frozenset[Group] = TIMES if key == "replay" else frozenset({"time"})
    return [Differing(key, a or "no", b or "no", blocks, where)] if a or b else []


def replayed(run: Run) -> str | None:
    """Whether replies came from a recording at once, so that no time is a model's."""
    return "replayed" if _part(run, "engine", "kind") == "replay" else None


WAIT_SHARE = 0.2
"""Share of the CPU time they wanted that worker and engine may wait for a core, where the run
states no limit of its own."""
WAIT_OF_WALL = 0.05
"""Waits below this share of the wall time move no figure and are let pass."""
STALL_SHARE = 0.25
"""Share of a scope's time in which any task of the machine may be ready and have no core."""
PHASES_OF = {phase: (phase,) for phase in PHASES} | {"question": ("retrieval", "generation")}


def contended(run: Run, system: str, phases: Sequence[str]) -> str | None:
    """How much a phase's windows waited for a core, where that is too much to trust its times."""
    stated = (run.manifest.get("contention") or {}).get("limit")
    limit = WAIT_SHARE if stated is None else float(stated)
    mine = run.windows[run.windows["system"].eq(system) & run.windows["phase"].isin(phases)]
    waits, cpu = (
        float(mine[[f"worker_{what}", f"engine_{what}"]].sum().sum())
        for what in ("wait_s", "cpu_s")
    )
    wall = float((mine["end_s"] - mine["start_s"] - mine["quiet_s"]).sum())
    least = max(WAIT_OF_WALL * wall, limit * (waits + cpu), FLOOR_S * len(mine))
    if waits > least:
        return f"{100 * waits / (waits + cpu):.0f} % of its time waiting for a core"
    stalled = stall_share(run, set(mine["scope"]))
    if stalled is None:
        stalled = stall_share(run, {None})  # the references have no readings of their own
    if stalled is not None and stalled > STALL_SHARE:
        return f"machine short of cores {100 * stalled:.0f} % of the time"
    return None


def stall_share(run: Run, scopes: Set[str | None]) -> float | None:
    """Share of the scopes' time in which something on the machine had no core; None: not known.

    A foreign server's own waits cannot be read, so that a burst of other work shows only here.
    """
    begun: dict[str | None, Contention] = {}
    stalled, seconds = 0.0, 0.0
    for row in run.journal:
        if not isinstance(row, Contention) or row.scope not in scopes:
            continue
        if row.edge == "begin":
            begun[row.scope] = row
        elif (first := begun.pop(row.scope, None)) is not None:
            if row.stall_s is None or first.stall_s is None:
                return None
            stalled, seconds = (
                stalled + row.stall_s - first.stall_s,
                seconds + row.at_s - first.at_s,
            )
    return stalled / seconds if seconds > 0 else None


def sampling(run: Run) -> str:
    """The profile's sampling; unknown counts as native."""
    calls = (run.manifest.get("profile") or {}).get("calls") or {}
    return str(calls.get("sampling") or "native")


QUIET_KEYS = ("profile.name", "profile.description", "profile.workload", "profile.systems")
"""Profile keys that are said elsewhere or mean nothing."""


def _stated(a: Run, b: Run) -> Iterator[Differing]:
    """Settings that differ and forbid nothing: often the very thing that was changed."""
    one, two = _settings(a), _settings(b)
    for key in dict.fromkeys([*one, *two]):
        if one.get(key) != two.get(key) and not key.startswith(QUIET_KEYS):
            yield Differing(key, shown(one.get(key)), shown(two.get(key)), frozenset())


def _settings(run: Run) -> dict[str, Any]:
    manifest = run.manifest
    names = ("mode", "backend", "threads", "kind", "window", "window_tokens")
    engine = {f"engine.{n}": (manifest.get("engine") or {}).get(n) for n in names}
    systems = {
        f"systems.{name}.{fact}": (info or {}).get(fact)
        for name, info in (manifest.get("systems") or {}).items()
        for fact in ("upstream", "fidelity", "lock", "code")
    }
    profile = dict(_flat("profile", manifest.get("profile") or {}))
    facts = {"agentmem": manifest.get("agentmem"), "status": manifest.get("status")}
    # The address of a local server is another one every time.
    skip = ("profile.engine.url", "profile.engine.embed_url", "profile.engine.model")
    settings = facts | engine | profile | systems
    return {key: value for key, value in settings.items() if key not in skip}


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{prefix}.{key}", inner)
    else:
        yield prefix, value


def shown(value: Any) -> str:
    """A fact in at most forty characters."""
    text = "not stated" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
