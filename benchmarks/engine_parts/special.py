"""Work of our engine alone, and memory: drafts, peak, a long queue, traffic classes."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.engine_parts.bench import Bench, closing
from benchmarks.engine_parts.link import EngineFailedError, Link
from benchmarks.engine_parts.ours import high
from benchmarks.engine_parts.peers import PEERS
from benchmarks.engine_parts.prompts import OPENINGS, prompts, repeating
from benchmarks.engine_parts.rows import Row, compare, not_available, spread

QUEUES = (8, 1_000, 1_000_000)
QUEUE_S = 1500.0
RUNNING = 8
DRAFT_TARGETS = {"accepted": 2.0, "rejected": 0.97}
MEMORY_TARGET, QUEUE_TARGET = 0.83, 0.95
CLASS_TARGET = 1 / 1.5
"""p95 beside background work within 1.5 times of p95 alone."""
UNBOUNDED = 1 << 60


JOBS = {"drafts": 4, "memory": 2, "queue": len(QUEUES), "classes": 3}
"""A round of each."""


def jobs(groups: tuple[str, ...], rounds: int) -> int:
    """How many jobs the special works of one model are."""
    return rounds * sum(count for group, count in JOBS.items() if group in groups)


def run(bench: Bench, model: str) -> None:
    """The special works that were asked for; a failure is a row with its reason."""
    works = {"drafts": drafts, "memory": memory, "queue": queue, "classes": classes}
    for group, work in works.items():
        if group not in bench.options.groups:
            continue
        before = bench.screen.jobs
        try:
            work(bench, model)
        except EngineFailedError as error:
            bench.emit(not_available(group, model, "-", "", str(error)))
        bench.screen.done(before + bench.options.rounds * JOBS[group] - bench.screen.jobs)


def drafts(bench: Bench, model: str) -> None:
    """Seconds a token with and without drafts, on a text where they hit and one where not."""
    quick, rounds = bench.options.quick, bench.options.rounds
    steps = 32 if quick else 128
    link, mode = bench.open_default(model, {"drafts": True}, " drafts")
    with closing({"ours": link}):
        link.ask("warm_up")
        for kind in DRAFT_TARGETS:
            bench.screen.doing(f"{model}  drafts: looking for a prompt ({kind})")
            ids = _draft_prompt(link, kind, steps)
            row = Row(f"drafts {kind}", model, mode, "tok/s")
            row.target = None if quick else DRAFT_TARGETS[kind]
            with_drafts: list[float | None] = []
            without: list[float | None] = []
            same = True
            told: dict[str, Any] = {}
            for number in range(rounds):
                row.conditions.append(bench.conditions())
                found = {}
                for use in (True, False) if number % 2 else (False, True):
                    bench.screen.doing(f"{model}  drafts {kind}")
                    found[use] = link.ask("drafted", ids=ids, steps=steps, drafts=use)
                    bench.screen.done()
                told = found[True]
                with_drafts.append(steps / told["s"])
                without.append(steps / found[False]["s"])
                same &= told["tokens"] == found[False]["tokens"]
            row.notes.append(f"{told['accepted']} of {told['drafted']} drafted tokens accepted")
            compare(row, with_drafts, {"ours without drafts": without}, rate=True)
            _judge_drafts(row, kind, same, told)
            bench.emit(row, link)


def _judge_drafts(row: Row, kind: str, same: bool, told: dict[str, Any]) -> None:
    row.notes.append("tokens identical" if same else "TOKENS DIFFER")
    if not same:
        row.status, row.reason = "failed", "the tokens with drafts differ from those without"
    share = told["accepted"] / told["drafted"] if told["drafted"] else 0.0
    if kind == "accepted" and share < 0.75:
        row.notes.append("fewer than 3 of 4 drafts accepted: not the case that the target is of")
    if kind == "rejected" and (share > 0.05 or not told["drafted"]):
        row.notes.append("no prompt was found whose drafts are all rejected")


def _draft_prompt(link: Link, kind: str, steps: int) -> list[int]:
    """The candidate whose drafts are accepted most, or least."""
    texts = [repeating(6), repeating(3)] if kind == "accepted" else list(OPENINGS)
    shares = []
    for text in texts:
        ids = link.ask("encode", text=text)["ids"]
        told = link.ask("drafted", ids=ids, steps=steps, drafts=True)
        share = told["accepted"] / told["drafted"] if told["drafted"] else None
        shares.append((share, ids))
    tried = [(share, ids) for share, ids in shares if share is not None]
    if not tried:
        return shares[0][1]
    best = max if kind == "accepted" else min
    return best(tried, key=lambda pair: pair[0])[1]


def memory(bench: Bench, model: str) -> None:
    """Peak memory above the bare runtime with 8 sequences held at once, a fresh process each."""
    quick = bench.options.quick
    length = 128 if quick else 2048
    peer = PEERS["llama.cpp"]
    row = Row(f"peak memory, 8 x {length}", model, "int8", "MiB")
    row.target = None if quick else MEMORY_TARGET
    taken: dict[str, list[float | None]] = {"ours": [], peer.name: []}
    link = None
    for number in range(bench.options.rounds):
        row.conditions.append(bench.conditions())
        for name, values in taken.items():
            bench.screen.doing(f"{model}  peak memory  {name}")
            try:
                if name == "ours":
                    opened = bench.open_ours(model, "int8", {}, " memory")
                else:
                    opened = bench.open_peer(model, peer, " memory")
            except EngineFailedError as error:
                values.append(None)
                if name == "ours":
                    row.reason = str(error)
                else:
                    row.peers[name] = {"missing": str(error)}
                bench.screen.done()
                continue
            with opened:
                link = opened if name == "ours" else link
                ids = prompts(8, length, seed=number, vocabulary=opened.facts["vocabulary"])
                opened.ask("decode", ids=ids, steps=8)
                values.append(opened.ask("peak")["peak_mib"] - opened.facts["bare_mib"])
            bench.screen.done()
    compare(row, taken.pop("ours"), taken, rate=False)
    bench.emit(row, link)


def queue(bench: Bench, model: str) -> None:
    """Seconds a step of 8 interactive sequences while ever more background requests wait."""
    quick = bench.options.quick
    sizes = (8, 100, 1_000) if quick else QUEUES
    steps = 8 if quick else 64
    load = {"max_running": RUNNING, "max_queued_background_tokens": UNBOUNDED, "drafts": False}
    conditions = []
    with closing({}) as links:
        for size in sizes:
            link, mode = bench.open_default(model, load, f" queue {size}")
            links[str(size)] = link
            link.ask("warm_up")
            bench.screen.doing(f"{model}  queueing {size:,} requests")
            told = link.ask("queue", count=RUNNING + size, timeout_s=QUEUE_S)
            link.facts["queueing"] = told
        figures: dict[int, list[float | None]] = {size: [] for size in sizes}
        for number in range(bench.options.rounds):
            conditions.append(bench.conditions())
            ids = prompts(RUNNING, 64, seed=number, vocabulary=link.facts["vocabulary"])
            for size in sizes:
                bench.screen.doing(f"{model}  step with {size:,} queued")
                told = links[str(size)].ask("decode", ids=ids, steps=steps)
                figures[size].append(1e3 * RUNNING * told["s"] / told["tokens"])
                bench.screen.done()
        for size in sizes[1:]:
            row = Row(f"step with {size:,} queued", model, mode, "ms")
            row.target, row.conditions = None if quick else QUEUE_TARGET, conditions
            link = links[str(size)]
            row.notes.append(f"{link.facts['queueing']['submit_us']:.0f} us to queue a request")
            rivals = {f"ours, {sizes[0]} queued": figures[sizes[0]]}
            bench.emit(compare(row, figures[size], rivals, rate=False), link)


def classes(bench: Bench, model: str) -> None:
    """Time to first token of interactive prompts: alone, beside others with and without classes."""
    quick = bench.options.quick
    length, load, asked = (64, 64, 2) if quick else (1000, 1000, 5)
    link, mode = bench.open_default(model, {}, " classes")
    ways = {"alone": None, "classes": "background", "no classes": "interactive"}
    times: dict[str, list[float]] = {way: [] for way in ways}
    p50: dict[str, list[float]] = {way: [] for way in ways}
    conditions = []
    with closing({"ours": link}):
        link.ask("warm_up")
        vocabulary = link.facts["vocabulary"]
        for number in range(bench.options.rounds):
            conditions.append(bench.conditions())
            ids = prompts(asked, length, seed=number, vocabulary=vocabulary)
            beside = prompts(4, load, seed=500 + number, vocabulary=vocabulary)
            for way, kind in ways.items():
                bench.screen.doing(f"{model}  time to first token, {way}")
                told = link.ask("classes", ids=ids, load=beside, kind=kind, steps=8)
                times[way] += told["ttft_s"]
                p50[way].append(told["p50_s"])
                bench.screen.done()
        for rival, goal in (("alone", CLASS_TARGET), ("no classes", 1.0)):
            row = Row(f"TTFT p95 beside background, against {rival}", model, mode, "ms")
            row.target, row.conditions = None if quick else goal, conditions
            row.rounds = {way: [1e3 * t for t in found] for way, found in times.items()}
            row.ours, row.best_peer = 1e3 * high(times["classes"]), 1e3 * high(times[rival])
            row.peer, row.ratio = f"ours, {rival}", high(times[rival]) / high(times["classes"])
            row.spread = spread(times["classes"])
            medians = {way: f"{1e3 * statistics.median(v):.0f} ms" for way, v in p50.items()}
            row.notes.append(f"p50: {medians}; prompts of {length}, 4 requests beside")
            bench.emit(row, link)
