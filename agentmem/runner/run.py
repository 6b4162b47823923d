"""The one loop: prepare, start the engine and the gateway, drive every system, close the books."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import agentmem
from agentmem.errors import UsageError
from agentmem.gateway.server import Gateway, GatewayOptions, Upstream
from agentmem.meters.clock import RunClock
from agentmem.meters.energy import EnergyMeter
from agentmem.meters.host import host_facts
from agentmem.meters.sampler import Sampler
from agentmem.modelfiles.fetch import resolve
from agentmem.modelfiles.tokenizer import Tokenizer, load_tokenizer, reference_tokenizer
from agentmem.profile import Profile
from agentmem.records import RUN_FORMAT, Call, Row
from agentmem.runner import questions
from agentmem.runner.context import Context
from agentmem.runner.drive import Drive, scope_id
from agentmem.runner.engine import LocalEngine, ServerFacts, facts
from agentmem.runner.folder import RunFolder
from agentmem.runner.identity import run_identity
from agentmem.runner.prepare import Prepared, describe, prepare, system_row
from agentmem.runner.progress import Progress
from agentmem.runner.reader import Room
from agentmem.runner.resume import progressed
from agentmem.telemetry.journal import Journal, read_rows
from agentmem.telemetry.tables import write_tables
from agentmem.workloads.base import content_hash


@dataclass(frozen=True, slots=True)
class RunResult:
    """Where a run lies and how it ended."""

    path: Path
    status: str
    """complete, or incomplete when a system or question was not dealt with."""
    resumed: bool
    fresh: bool
    """False when the folder already held this finished run and nothing was done."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the command line adds to a profile; none of it changes a result."""

    out: Path | None = None
    capture: bool = False
    port: int = 0
    """Gateway port; 0 lets the system choose."""


def run(profile: Profile, options: RunOptions, progress: Progress) -> RunResult:
    """Run a profile to the end, or resume it where it stopped.

    Raises AgentMemError for what makes the run impossible. Failures of one system, unit or
    question are recorded and the run goes on.
    """
    prepared = prepare(profile, progress)
    with ExitStack() as stack:
        logs = stack.enter_context(_scratch())
        engine, server = _server(profile, logs, stack, progress)
        identity = _identity(prepared, server)
        folder = _folder(prepared, identity, options)
        stack.callback(folder.close)
        manifest = folder.read_manifest()
        if manifest is not None and manifest["identity"] != identity:
            raise UsageError(
                f"{folder.path} holds another run ({manifest['identity'][:12]}, this one is "
                f"{identity[:12]}: the profile, code, data or model differ); choose another --out"
            )
        if manifest is not None and manifest["status"] == "complete":
            return RunResult(folder.path, "complete", False, False)
        resumed = manifest is not None
        _keep_log(stack, logs, folder)
        manifest = manifest or _manifest(prepared, server, identity)
        status = _measure(prepared, server, engine, folder, manifest, options, progress)
        return RunResult(folder.path, status, resumed, True)


def _measure(
    prepared: Prepared,
    server: ServerFacts,
    engine: LocalEngine | None,
    folder: RunFolder,
    manifest: dict[str, Any],
    options: RunOptions,
    progress: Progress,
) -> str:
    """The measured part; leaves the manifest with the run's status whatever happens."""
    before = list(read_rows(folder.journal)) if folder.journal.exists() else []
    folder.write_manifest({**manifest, "status": "running"})
    status = "incomplete"
    try:
        with ExitStack() as stack:
            ctx = _context(prepared, server, engine, folder, options, progress, stack, before)
            whole = _drive_all(ctx, prepared, before)
        status = "complete" if whole else "incomplete"
    finally:
        folder.write_manifest({**manifest, "status": status})
    write_tables(folder.journal, folder.path / "tables")
    return status


def _drive_all(ctx: Context, prepared: Prepared, before: list[Row]) -> bool:
    whole = True
    for spec in prepared.systems:
        for history in prepared.workload.histories:
            state = progressed(before, scope_id(spec.name, history.history))
            if not state.done:
                env = prepared.environments[spec.name]
                whole &= Drive(ctx, spec, env, history, state).run()
    if ctx.profile.run.reference_rows:
        for system in (questions.NO_MEMORY, questions.ORACLE):
            for history in prepared.workload.histories:
                state = progressed(before, f"{system}.{history.history}")
                if not state.done:
                    questions.reference(ctx, system, history, state.epoch, set(state.queries))
    return whole


def _context(
    prepared: Prepared,
    server: ServerFacts,
    engine: LocalEngine | None,
    folder: RunFolder,
    options: RunOptions,
    progress: Progress,
    stack: ExitStack,
    before: list[Row],
) -> Context:
    profile = prepared.profile
    clock = RunClock(_last_time(before))
    journal = Journal(folder.journal)
    stack.callback(journal.close)
    counter = _counter(profile, server)
    gateway = Gateway(
        Upstream(server.url, profile.engine.embed_url or server.url, *_keys(profile)),
        _sink(journal, progress),
        clock.now,
        GatewayOptions(
            capture_dir=folder.path / "captures" if options.capture else None,
            sampling=profile.calls.sampling,
            temperature=profile.calls.temperature,
            constrain=profile.calls.constrain,
            token_counter=counter.count,
            tokenizer_name=counter.name,
            port=options.port,
            upstream_timeout_s=profile.calls.upstream_timeout_s,
        ),
    )
    sampler = Sampler(clock.now, journal.write, hz=profile.meters.hz)
    gateway.start()
    stack.callback(gateway.stop)
    sampler.watch_self("gateway")
    if engine is not None:
        sampler.watch("engine", engine.pid)
    sampler.start()
    stack.callback(sampler.stop)
    answer = profile.answer
    room = Room(server.window_tokens, answer.max_tokens, answer.k, answer.k_overflow, counter.count)
    return Context(
        profile,
        folder.path.name,
        folder,
        journal,
        gateway,
        sampler,
        EnergyMeter(),
        clock.now,
        server,
        engine,
        room,
        progress,
    )


def _sink(journal: Journal, progress: Progress) -> Callable[[Row], None]:
    def sink(row: Row) -> None:
        journal.write(row)
        if isinstance(row, Call):
            progress.tokens(row.input_tokens or 0, row.output_tokens or 0)

    return sink


def _counter(profile: Profile, server: ServerFacts) -> Tokenizer:
    if server.kind == "local":
        return load_tokenizer(resolve(profile.engine.model))
    return reference_tokenizer("words-v1")


def _keys(profile: Profile) -> tuple[str | None, str | None]:
    import os

    key = os.environ.get(profile.engine.api_key_env) if profile.engine.url != "local" else None
    return key, key


def _last_time(rows: list[Row]) -> float:
    """Where an earlier session's clock stopped, so that times of one run never run backwards."""
    times = [getattr(r, name, None) for r in rows for name in ("end_s", "at_s", "start_s")]
    return max((t for t in times if t is not None), default=0.0)


def _server(
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


def _identity(prepared: Prepared, server: ServerFacts) -> str:
    locks = {name: env.lock_hash for name, env in prepared.environments.items()}
    data = content_hash(prepared.workload)
    return run_identity(
        prepared.profile.as_dict(),
        data,
        server.as_dict(),
        locks,
        [s.folder for s in prepared.systems],
    )


def _folder(prepared: Prepared, identity: str, options: RunOptions) -> RunFolder:
    if options.out is not None:
        return RunFolder(options.out)
    return RunFolder(Path("runs") / f"{prepared.profile.name}-{identity[:12]}")


def _manifest(prepared: Prepared, server: ServerFacts, identity: str) -> dict[str, Any]:
    profile = prepared.profile
    low, mid, high = profile.meters.w_per_core
    meter = EnergyMeter()
    return {
        "format": RUN_FORMAT,
        "run_id": f"{profile.name}-{identity[:12]}",
        "identity": identity,
        "status": "running",
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "agentmem": agentmem.__version__,
        "profile": profile.as_dict(),
        "systems": {
            s.name: system_row(s, prepared.environments[s.name])
            for s in prepared.systems
            for s in prepared.systems
        },
        "order": [s.name for s in prepared.systems],
        "engine": server.as_dict(),
        "embedder": {"model": server.embed_model, "dims": server.embed_dims},
        "workload": {**describe(prepared.workload), "data_hash": content_hash(prepared.workload)},
        "machine": host_facts(),
        "energy": {
            "source": meter.source,
            "scope": meter.scope,
            "w_per_core": {"low": low, "mid": mid, "high": high},
        },
        "notes": [],
    }


@contextmanager
def _scratch() -> Iterator[Path]:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="agentmem-") as folder:
        yield Path(folder)


def _keep_log(stack: ExitStack, logs: Path, folder: RunFolder) -> None:
    """Copy the engine's log into the run folder when the run ends, however it ends."""
    import shutil

    def keep() -> None:
        if (logs / "engine.log").exists():
            shutil.copy(logs / "engine.log", folder.path / "logs" / "engine.log")

    stack.callback(keep)
