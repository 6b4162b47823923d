"""What the meters show at one moment, and the row that two such moments make."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agentmem.meters.base import Number, ProcessReading, spent
from agentmem.records import Bucket, Phase, Window
from agentmem.runner.context import Context, Place


@dataclass(frozen=True, slots=True)
class Reading:
    """All meters of one scope at one moment."""

    at_s: float
    worker: ProcessReading | None
    engine: ProcessReading | None
    gateway: ProcessReading | None
    energy_j: float | None


def read(ctx: Context, place: Place) -> Reading:
    """Tens of microseconds; any thread."""
    at_s, joules = ctx.clock(), ctx.energy.read()
    worker, engine, gateway = (
        ctx.sampler.reading(role) for role in (f"worker:{place.system}", "engine", "gateway")
    )
    return Reading(at_s, worker, engine, gateway, joules)


@dataclass(frozen=True, slots=True)
class Task:
    """What work is booked to."""

    phase: Phase | None
    bucket: Bucket
    unit: str | None


def write_window(
    ctx: Context,
    place: Place,
    task: Task,
    span: tuple[float, float],
    quiet_s: float,
    readings: tuple[Reading, Reading] | None,
) -> None:
    """Write the row; without readings its costs are unknown."""
    first, last = readings or (_BLIND, _BLIND)
    worker = spent(first.worker, last.worker)
    engine = spent(first.engine, last.engine)
    known = first.energy_j is not None and last.energy_j is not None
    ctx.write(
        Window(
            scope=place.scope,
            system=place.system,
            history=place.history,
            phase=task.phase,
            bucket=task.bucket,
            unit=task.unit,
            start_s=span[0],
            end_s=span[1],
            quiet_s=quiet_s,
            worker_cpu_s=_grown(worker.cpu_s),
            engine_cpu_s=_grown(engine.cpu_s),
            gateway_cpu_s=spent(first.gateway, last.gateway).cpu_s,
            worker_wait_s=_grown(worker.wait_s),
            engine_wait_s=_grown(engine.wait_s),
            energy_j=last.energy_j - first.energy_j if known else None,  # type: ignore[operator]
            energy_source=ctx.energy.source,
            energy_scope=ctx.energy.scope,
            epoch=place.epoch,
            repeat=place.repeat,
            worker_read_bytes=_grown(worker.read_bytes),
            worker_write_bytes=_grown(worker.write_bytes),
        )
    )


def _grown(used: Number | None) -> Number | None:
    """A counter that fell is another process's, started in between: unknown."""
    return None if used is None or used < 0 else used


def before_start(first: Reading) -> Reading:
    """A reading taken before the scope's worker was there: all that it will show is its own."""
    if first.worker is not None:
        return first
    nothing = ProcessReading(0.0, 0.0, 0, None, 0, 0, None, processes=0)
    return replace(first, worker=nothing)


_BLIND = Reading(0.0, None, None, None, None)


def wait_quiet(
    ctx: Context, place: Place, unit: str | None, quiet_s: float, operation: str | None = None
) -> float:
    """Seconds until the scope was quiet; a failure is put on record when it never was."""
    limit_s = ctx.profile.run.quiet_timeout_s
    waited = ctx.gateway.wait_quiet(place.scope, quiet_s, limit_s, operation=operation)
    if waited is None:
        message = f"calls still in flight after {limit_s} s"
        place.failure(ctx, "quiet", unit, "not_quiet", message)
        return limit_s
    return waited
