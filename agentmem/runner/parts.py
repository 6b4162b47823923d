"""The parts of one run, built and started in order; each is stopped when the run's stack closes."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import agentmem
from agentmem.gateway.forcing import Forcing
from agentmem.gateway.replay import Replay
from agentmem.gateway.server import Gateway, GatewayOptions, Upstream
from agentmem.meters import energy, host, probe
from agentmem.meters.base import EnergyMeter
from agentmem.meters.clock import RunClock
from agentmem.meters.sampler import Sampler
from agentmem.modelfiles.tokenizer import Tokenizer
from agentmem.profile import Profile
from agentmem.records import PHASES, RUN_FORMAT, Call, CallBegin, Row
from agentmem.runner import rounds, tape, through
from agentmem.runner.context import Context, Taps
from agentmem.runner.engine import OF_A_CALL, LocalEngine, ServerFacts, facts, without_effect
from agentmem.runner.folder import RunFolder
from agentmem.runner.identity import digest
from agentmem.runner.keeper import Keeper
from agentmem.runner.options import RunOptions
from agentmem.runner.prepare import Prepared, describe, system_row
from agentmem.runner.progress import Progress
from agentmem.runner.reader import Room
from agentmem.telemetry.journal import Journal
from agentmem.workloads.base import content_hash


def server(
    profile: Profile,
    logs: Path,
    stack: ExitStack,
    progress: Progress,
    options: RunOptions,
    replay: Replay | None,
) -> tuple[LocalEngine | None, ServerFacts]:
    """Start the local engine, or look at the foreign one; EngineError when it is not usable.

    For a replay at once nothing is started or contacted; UsageError for one through an engine that
    cannot be made to produce given tokens.
    """
    if replay is not None and not tape.is_through(options):
        return None, tape.served(replay)
    engine, served = _started(profile, logs, stack, progress)
    if replay is not None:
        through.check(served)
    return engine, served


def _started(
    profile: Profile, logs: Path, stack: ExitStack, progress: Progress
) -> tuple[LocalEngine | None, ServerFacts]:
    spec = profile.engine
    if spec.url != "local":
        url = spec.url.rstrip("/")
        return None, facts(url, (spec.embed_url or url).rstrip("/"), spec, "foreign")
    progress.note(f"starting the local engine: {spec.model}, {spec.mode}")
    engine = LocalEngine(spec, logs / "engine.log")
    stack.callback(engine.stop)
    url = engine.url.rstrip("/")
    url = url if url.endswith("/v1") else f"{url}/v1"
    return engine, facts(url, url, spec, "local")


def context(
    prepared: Prepared,
    served: ServerFacts,
    engine: LocalEngine | None,
    folder: RunFolder,
    progress: Progress,
    stack: ExitStack,
    *,
    began_s: float,
    manifest: Mapping[str, Any],
    options: RunOptions,
    replay: Replay | None,
) -> Context:
    """Journal, gateway and meters, started. `began_s` is where an earlier session's clock stopped.

    UsageError when `port` is taken.
    """
    profile = prepared.profile
    clock = RunClock(began_s)
    journal = Journal.reopen(folder.journal)
    stack.callback(journal.close)
    told, forcing = _told(profile, served, options, replay)
    counter = tape.counter(profile, told, replay)
    captures = folder.path / "captures" if options.capture else None
    policy = gateway_options(profile, served, counter, captures, options)
    policy = tape.attach(policy, options.record, replay, forcing, manifest, served, stack)
    taps: Taps = {}
    sink = _sink(journal, progress, taps)
    gateway = Gateway(_upstream(profile, served), sink, clock, policy)
    gateway.start()
    stack.callback(gateway.stop)
    meter = energy_meter(stack)
    sampler = Sampler(clock, journal.write, profile.meters.hz, (meter.tick,))
    sampler.watch("gateway", os.getpid(), tree=False)
    sampler.start()
    stack.callback(sampler.stop)
    keeper = None
    if engine is not None:
        keeper = Keeper(engine, gateway, sampler, progress.note)
        stack.callback(keeper.stop)
    answer = profile.answer
    return Context(
        profile=profile,
        run_id=_own_name(folder.path, manifest),
        folder=folder,
        journal=journal,
        gateway=gateway,
        sampler=sampler,
        energy=meter,
        clock=clock,
        facts=told,
        keeper=keeper,
        room=Room(
            told.window_tokens, answer.max_tokens, answer.k, answer.k_overflow, counter.count
        ),
        progress=progress,
        taps=taps,
    )


def _told(
    profile: Profile, served: ServerFacts, options: RunOptions, replay: Replay | None
) -> tuple[ServerFacts, Forcing | None]:
    """What systems hear of the server, and how recorded replies are forced on it."""
    if replay is None or not tape.is_through(options):
        return served, None
    recorded = tape.served(replay)
    forcing = through.forcing(profile, served, recorded, replay.header.get("tokenizer"))
    return through.told(recorded, served), forcing


def _own_name(folder: Path, manifest: Mapping[str, Any]) -> str:
    """A name that no other run has, so that none finds this one's caches on a server they share.

    It stays when the run is resumed.
    """
    return f"{folder.name}.{digest([str(folder.resolve()), manifest['created']])[:8]}"


def gateway_options(
    profile: Profile,
    served: ServerFacts,
    counter: Tokenizer,
    captures: Path | None,
    options: RunOptions,
) -> GatewayOptions:
    """The gateway's policy as the profile asks for it."""
    calls, engine = profile.calls, profile.engine
    ways = {name: False for name in OF_A_CALL if served.ours and not getattr(engine, name)}
    if served.ours and options.record is not None:
        ways["return_token_ids"] = True  # so that an engine can be made to produce them again
    return GatewayOptions(
        capture_dir=captures,
        sampling=calls.sampling,
        temperature=calls.temperature,
        constrain=calls.constrain,
        seed=profile.run.seed,
        token_counter=counter.count,
        tokenizer_name=counter.name,
        upstream_timeout_s=calls.upstream_timeout_s,
        port=options.port,
        traffic={phase: getattr(engine.traffic, phase) for phase in PHASES},
        ways=ways,
    )


def energy_meter(stack: ExitStack) -> EnergyMeter:
    """The one meter of a run; the others that work here are closed again."""
    meters = probe.energy_meters()
    for meter in meters:
        stack.callback(meter.close)
    return energy.choose(meters, engine_on_gpu=False)


def manifest(prepared: Prepared, served: ServerFacts, identity: str) -> dict[str, Any]:
    """What a run folder says about itself; `status` is filled in by the run."""
    profile = prepared.profile
    with ExitStack() as stack:
        meter = energy_meter(stack)
    return {
        "format": RUN_FORMAT,
        "run_id": f"{profile.name}-{identity[:12]}",
        "identity": identity,
        "status": "running",
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "agentmem": agentmem.__version__,
        "profile": profile.as_dict(),
        "systems": {s.name: system_row(s, prepared.environments[s.name]) for s in prepared.systems},
        "order": rounds.orders(profile, [s.name for s in prepared.systems], 1)[0],
        **rounds.describe(
            profile, prepared.systems, [h.history for h in prepared.workload.histories]
        ),
        "engine": served.as_dict(),
        "embedder": {"model": served.embed_model, "dims": served.embed_dims},
        "workload": {**describe(prepared.workload), "data_hash": content_hash(prepared.workload)},
        "machine": host.facts(),
        "energy": energy.describe(meter, energy.Band(*profile.meters.w_per_core)),
        "notes": _notes(profile, served),
    }


def _notes(profile: Profile, served: ServerFacts) -> list[str]:
    """What the engine could not do as asked, said once."""
    told = () if served.kind == "replay" else served.notes
    undone = without_effect(profile.engine, served)
    return [*(f"engine: {note}" for note in told), *([undone] if undone else [])]


def _upstream(profile: Profile, served: ServerFacts) -> Upstream:
    key = os.environ.get(profile.engine.api_key_env) if served.kind == "foreign" else None
    report = served.url.removesuffix("/v1") + "/agentmem/requests"
    return Upstream(
        served.url,
        profile.engine.embed_url.rstrip("/") or None,
        key,
        key,
        report if served.kind == "local" else None,
    )


def _sink(journal: Journal, progress: Progress, taps: Taps) -> Callable[[Row], None]:
    def sink(row: Row) -> None:
        journal.write(row)
        tap = taps.get(row.scope) if isinstance(row, Call | CallBegin) else None
        if tap is not None:
            tap(row)
        if isinstance(row, Call):
            progress.tokens(row.input_tokens or 0, row.output_tokens or 0)

    return sink
