"""Work that all engines do: each case in interleaved rounds, every engine loaded all the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.engine_parts.bench import Bench, closing, peers_of
from benchmarks.engine_parts.cases import OWN_MODES, Against, Case
from benchmarks.engine_parts.floor import config_of, floor_tokens_s
from benchmarks.engine_parts.link import EngineFailedError, Link
from benchmarks.engine_parts.rows import Row, compare

SAMPLE = "The capital of France is Paris, the capital of Italy is Rome, the capital of Spain is"
KV_KINDS = ("fp32", "bf16", "int8")


@dataclass(slots=True)
class Taken:
    """Figures of one case: by engine, one a round; the moment beside each round."""

    figures: dict[str, list[float | None]] = field(default_factory=dict)
    conditions: list[dict[str, float]] = field(default_factory=list)


def jobs(cases: Sequence[Case], rounds: int, peers: int) -> int:
    """How many jobs a model's cases are."""
    own = sum(len(c.modes) + (1 if c.own else 0) * len(c.modes) for c in cases)
    return rounds * (own + peers * len(cases))


def run(bench: Bench, model: str, cases: Sequence[Case]) -> None:
    """All cases of a model; engines that cannot be opened become reasons."""
    if not cases:
        return
    with closing({}) as links:
        open_all(bench, model, cases, links)
        sample(bench, model, links)
        for number, case in enumerate(cases):
            taken = measure(bench, model, case, links, shift=number)
            for mode in case.modes:
                for against in case.against(model, mode):
                    link = links.get(f"ours/{mode}")
                    bench.emit(row_of(bench, model, case, mode, against, taken), link)


def open_all(bench: Bench, model: str, cases: Sequence[Case], links: dict[str, Link]) -> None:
    """Our engine in every mode that some case wants, and the peers; each warmed up."""
    wanted = {mode for case in cases for mode in case.modes}
    for mode in (m for m in OWN_MODES if m in wanted):
        try:
            links[f"ours/{mode}"] = bench.open_ours(model, mode)
        except EngineFailedError as error:
            bench.reasons[model, f"ours/{mode}"] = str(error)
    for peer in peers_of(bench.options):
        try:
            links[peer.name] = bench.open_peer(model, peer)
        except EngineFailedError as error:
            bench.reasons[model, peer.name] = str(error)
            bench.screen.say(f"{model}  [yellow]without {peer.name}[/]: {error}")
    for label, link in list(links.items()):
        if ask(bench, model, label, links, "warm_up") is not None:
            bench.engines[f"{model} {label}"] = link.facts


def sample(bench: Bench, model: str, links: dict[str, Link]) -> None:
    """Greedy tokens of a plain text by every engine, to see that they run the same model."""
    ours = next((label for label in links if label.startswith("ours/")), None)
    if ours is None:
        return
    ids = ask(bench, model, ours, links, "encode", text=SAMPLE)
    if ids is None:
        return
    said = {
        label: told["tokens"]
        for label in list(links)
        if (told := ask(bench, model, label, links, "greedy", ids=ids["ids"], steps=16))
    }
    base = said.get("ours/bf16") or said.get(ours, [])
    for label, tokens in said.items():
        pairs = zip(tokens, base, strict=False)
        same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(tokens), len(base)))
        links[label].facts["same_greedy_tokens"] = f"{same} of {len(base)}"


def ask(
    bench: Bench, model: str, label: str, links: dict[str, Link], job: str, **given: Any
) -> dict[str, Any] | None:
    """A job; an engine that fails it is closed and its reason kept."""
    try:
        return links[label].ask(job, **given)
    except EngineFailedError as error:
        bench.reasons[model, label] = f"{job}: {error}"
        bench.screen.say(f"{model}  [red]{label} failed[/] {job}: {error}")
        links.pop(label).close()
        return None


def measure(bench: Bench, model: str, case: Case, links: dict[str, Link], shift: int = 0) -> Taken:
    """A case in rounds: every engine once a round, each round beginning with the next one."""
    taken = Taken()
    turns = [label for label in links if not label.startswith("ours/")]
    turns += [f"ours/{mode}" for mode in case.modes if f"ours/{mode}" in links]
    if case.own is not None:
        turns += [f"{name} own" for name in turns if name.startswith("ours/")]
    expected = jobs([case], 1, len(bench.options.peers))
    for number in range(bench.options.rounds):
        taken.conditions.append(bench.conditions())
        begin = (number + shift) % max(1, len(turns))
        foreign = []
        for name in turns[begin:] + turns[:begin]:
            bench.screen.doing(f"{model}  {case.work}  {name}")
            value, told = once(bench, model, case, name, links, number)
            taken.figures.setdefault(name, []).append(value)
            foreign.append(told)
        told_cores = [cores for cores in foreign if cores is not None]
        taken.conditions[-1]["foreign_cores"] = max(told_cores, default=0.0)
        bench.screen.done(expected)
    return taken


def once(
    bench: Bench, model: str, case: Case, name: str, links: dict[str, Link], number: int
) -> tuple[float | None, float | None]:
    """One engine's turn: its figure, and the cores that others used meanwhile."""
    label = name.removesuffix(" own")
    if label not in links:
        return None, None
    vocabulary = min(link.facts["vocabulary"] for link in links.values())
    given = case.given(number, vocabulary)
    if name != label:
        # its prompts are new to the engine, as in the first variant
        given = case.given(number + 1000, vocabulary) | (case.own or {})
    told = ask(bench, model, label, links, case.job, **given)
    return (None, None) if told is None else (case.value(told), told["foreign_cores"])


def row_of(bench: Bench, model: str, case: Case, mode: str, against: Against, taken: Taken) -> Row:
    """One row of a case that was measured."""
    label = f"ours/{mode}"
    row = Row(case.work + against.title, model, mode, case.unit)
    row.target, row.conditions = against.target, taken.conditions
    missing = label not in taken.figures
    if missing:
        row.reason = bench.reasons.get((model, label), "not loaded")
    if against.rivals in ("peers", "bf16 peers"):
        for name in bench.options.peers:
            if (reason := bench.reasons.get((model, name))) is not None:
                row.peers[name] = {"missing": reason}
    elif missing:
        return compare(row, [], {}, case.rate)
    rivals = rivals_of(bench, model, case, mode, against, taken)
    for name in rivals:
        facts = bench.engines.get(f"{model} {name}", {})
        row.peers.setdefault(name, {})["mode"] = facts.get("mode", "-")
    return compare(row, taken.figures.get(label, []), rivals, case.rate)


def rivals_of(
    bench: Bench, model: str, case: Case, mode: str, against: Against, taken: Taken
) -> dict[str, list[float | None]]:
    """The figures that a row is compared with, by name."""
    label = f"ours/{mode}"
    if against.rivals == "own":
        return {case.own_title: taken.figures.get(f"{label} own", [])}
    if against.rivals == "floor":
        config = config_of(bench.resolve(model))
        kind = bench.engines[f"{model} {label}"]["kv"]
        kind = kind if kind in KV_KINDS else "bf16"
        speeds = [moment["bandwidth_gb_s"] for moment in taken.conditions]
        floors = [floor_tokens_s(config, mode, kind, case.context, speed) for speed in speeds]
        return {"reading alone": list(floors)}
    peers = peers_of(bench.options)
    if against.rivals == "bf16 peers":
        peers = [peer for peer in peers if peer.bf16]
    return {p.name: taken.figures[p.name] for p in peers if p.name in taken.figures}
