"""The one loop: prepare, start the engine and the gateway, drive every system, close the books."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentmem.errors import UsageError
from agentmem.gateway.replay import Replay
from agentmem.profile import Profile
from agentmem.records import Row
from agentmem.runner import parts, quality, questions, rounds, tape
from agentmem.runner.context import Context
from agentmem.runner.drive import Drive
from agentmem.runner.engine import LocalEngine, ServerFacts, warm_up
from agentmem.runner.folder import RunFolder
from agentmem.runner.identity import run_identity
from agentmem.runner.options import RunOptions
from agentmem.runner.prepare import Prepared, prepare
from agentmem.runner.progress import Progress
from agentmem.runner.resume import progressed
from agentmem.telemetry.journal import read_rows
from agentmem.telemetry.tables import write_tables
from agentmem.workloads.base import content_hash

__all__ = ["RunOptions", "RunResult", "run"]


@dataclass(frozen=True, slots=True)
class RunResult:
    """Where a run lies and how it ended."""

    path: Path
    status: str
    """complete, or incomplete when a system or question was not dealt with."""
    resumed: bool
    fresh: bool
    """False when the folder already held this finished run and nothing was done."""


def run(profile: Profile, options: RunOptions, progress: Progress) -> RunResult:
    """Run a profile to the end, or resume it where it stopped.

    Raises AgentMemError for what makes the run impossible. Failures of one system, unit or
    question are recorded and the run goes on.
    """
    with ExitStack() as stack:
        replay = tape.open_replay(options, stack)
        prepared = prepare(profile, progress, tape.models(profile, options, replay))
        logs = stack.enter_context(_scratch())
        engine, served = parts.server(profile, logs, stack, progress, options, replay)
        identity = _identity(prepared, served, options, replay)
        folder = _folder(prepared, identity, options)
        stack.callback(folder.close)
        manifest = folder.read_manifest()
        if manifest is not None and manifest["identity"] != identity:
            raise UsageError(
                f"{folder.path} holds another run ({manifest['identity'][:12]}, this one is "
                f"{identity[:12]}: the profile, code, data or model differ); choose another --out"
            )
        tape.check_recording(options, manifest, folder.journal)
        if manifest is not None and manifest["status"] == "complete":
            return RunResult(folder.path, "complete", False, False)
        stack.callback(_keep_log, logs, folder)
        resumed = manifest is not None
        if manifest is None:
            manifest = parts.manifest(prepared, served, identity)
            taped = tape.manifest_part(options, replay, served)
            manifest |= taped | {"notes": [*taped.get("notes", ()), *manifest["notes"]]}
        if profile.run.warm_up and served.kind != tape.REPLAY:
            warm_up(served, profile.engine)
        status = _measure(prepared, served, engine, folder, manifest, options, replay, progress)
        return RunResult(folder.path, status, resumed, True)


def _measure(
    prepared: Prepared,
    served: ServerFacts,
    engine: LocalEngine | None,
    folder: RunFolder,
    manifest: dict[str, Any],
    options: RunOptions,
    replay: Replay | None,
    progress: Progress,
) -> str:
    """The measured part; leaves the manifest with the run's status whatever happens."""
    before = read_rows(folder.journal) if folder.journal.exists() else []
    folder.write_manifest({**manifest, "status": "running"})
    status = "incomplete"
    try:
        with ExitStack() as stack:
            ctx = parts.context(
                prepared,
                served,
                engine,
                folder,
                progress,
                stack,
                began_s=_last_time(before),
                manifest=manifest,
                options=options,
                replay=replay,
            )
            if manifest["energy"].get("idle") is None:
                manifest["energy"]["idle"] = quality.idle(ctx)
            with quality.watched(ctx, None):
                whole = _drive_all(ctx, prepared, before)
            for failure in (ctx.journal.failure, ctx.sampler.failure):
                if failure is not None:  # met by another thread
                    raise failure
        status = "complete" if whole else "incomplete"  # closing the parts can fail, too
        limit = prepared.profile.meters.contention_limit
        quality.add_to(manifest, read_rows(folder.journal), limit)
    finally:
        folder.write_manifest({**manifest, "status": status})
    write_tables(folder.journal, folder.path / "tables")
    return status


def _drive_all(ctx: Context, prepared: Prepared, before: list[Row]) -> bool:
    whole = True
    specs = {s.name: s for s in prepared.systems}
    histories = {h.history: h for h in prepared.workload.histories}
    for turn in rounds.turns(ctx.profile, list(specs), list(histories)):
        state = progressed(before, turn.scope)
        if not state.done:
            spec, env = specs[turn.system], prepared.environments[turn.system]
            whole &= Drive(ctx, spec, env, histories[turn.history], turn, state).run()
    if ctx.profile.run.reference_rows:
        for system in (questions.NO_MEMORY, questions.ORACLE):
            for history in prepared.workload.histories:
                state = progressed(before, f"{system}.{history.history}")
                if not state.done:
                    questions.reference(ctx, system, history, state.epoch, set(state.queries))
    return whole


def _last_time(rows: list[Row]) -> float:
    """Where an earlier session's clock stopped, so that times of one run never run backwards."""
    times = [getattr(r, name, None) for r in rows for name in ("end_s", "at_s", "start_s")]
    return max((t for t in times if t is not None), default=0.0)


def _identity(
    prepared: Prepared, served: ServerFacts, options: RunOptions, replay: Replay | None
) -> str:
    recorded = {} if replay is None else {"recording": replay.sha256}
    if tape.is_through(options):
        recorded["replay_mode"] = options.replay_mode
    return run_identity(
        prepared.profile.as_dict(),
        content_hash(prepared.workload),
        served.as_dict() | recorded,
        {name: env.lock_hash for name, env in prepared.environments.items()},
        [s.folder for s in prepared.systems],
    )


def _folder(prepared: Prepared, identity: str, options: RunOptions) -> RunFolder:
    if options.out is not None:
        return RunFolder(options.out)
    return RunFolder(Path("runs") / f"{prepared.profile.name}-{identity[:12]}")


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="agentmem-") as folder:
        yield Path(folder)


def _keep_log(logs: Path, folder: RunFolder) -> None:
    """The engine starts before the folder is known; its log joins the run's other logs here."""
    if (logs / "engine.log").exists():
        shutil.copy(logs / "engine.log", folder.path / "logs" / "engine.log")
