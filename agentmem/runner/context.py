"""What every part of one run shares, and the window that puts work on the clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from agentmem.gateway.server import Gateway
from agentmem.meters.base import EnergyMeter, spent
from agentmem.meters.sampler import Sampler
from agentmem.profile import Profile
from agentmem.records import Bucket, Failure, Mark, MarkKind, Phase, Row, Window
from agentmem.runner.engine import ServerFacts, wait_until_served
from agentmem.runner.folder import RunFolder
from agentmem.runner.keeper import Keeper
from agentmem.runner.progress import Progress
from agentmem.runner.reader import Room
from agentmem.telemetry.journal import Journal


@dataclass(frozen=True, slots=True)
class Context:
    """The parts of a run in progress. Owned by `runner.run`, used by `runner.drive`."""

    profile: Profile
    run_id: str
    folder: RunFolder
    journal: Journal
    gateway: Gateway
    sampler: Sampler
    energy: EnergyMeter
    clock: Callable[[], float]
    facts: ServerFacts
    keeper: Keeper | None
    """Restarts a local engine that died; None for a foreign server."""
    room: Room
    progress: Progress

    def write(self, row: Row) -> None:
        self.journal.write(row)

    def trouble(self, scope: str) -> int:
        """Broken calls of a scope and engine restarts so far; only grows."""
        return self.gateway.transport_failures(scope) + (self.keeper.restarts if self.keeper else 0)

    def wait_for_engine(self) -> None:
        """Return when the model server answers again; EngineError when it stays away."""
        if self.keeper is not None:
            self.keeper.wait()
        else:
            wait_until_served(self.facts, self.profile.engine)


@dataclass(frozen=True, slots=True)
class Place:
    """Which scope rows belong to."""

    scope: str
    system: str
    history: str
    epoch: int

    def mark(
        self,
        ctx: Context,
        what: MarkKind,
        unit: str | None = None,
        kept: tuple[str, ...] | None = None,
    ) -> None:
        """Journal a point that resume relies on, durably."""
        ctx.write(
            Mark(self.scope, self.system, self.history, what, unit, ctx.clock(), kept, self.epoch)
        )
        ctx.journal.sync()

    def failure(
        self,
        ctx: Context,
        where: str,
        unit: str | None,
        kind: str,
        message: str,
        last: str | None = None,
    ) -> None:
        """Journal something that went wrong and was lived through, and say so."""
        ctx.write(
            Failure(
                self.scope,
                self.system,
                self.history,
                where,
                unit,
                kind,
                message,
                last,
                ctx.clock(),
                self.epoch,
            )
        )
        at = f" {unit}" if unit else ""
        ctx.progress.note(f"{self.system}: {where}{at} failed ({kind}): {message.splitlines()[0]}")


@contextmanager
def window(
    ctx: Context,
    place: Place,
    phase: Phase | None,
    bucket: Bucket,
    unit: str | None,
    quiet_s: float,
) -> Iterator[None]:
    """Book all calls of the scope made inside to (phase, bucket, unit), and time the work.

    Closes when nothing is in flight and `quiet_s` have passed without a request; the interval
    itself is recorded as quiet, not as work. The row is written also when the body raises.
    """
    ctx.gateway.set_phase(place.scope, phase, bucket, unit)
    worker = f"worker:{place.system}"
    roles = (worker, "engine", "gateway")
    start, before = ctx.clock(), [ctx.sampler.reading(r) for r in roles]
    joules = ctx.energy.read()
    try:
        yield
    finally:
        waited = ctx.gateway.wait_quiet(place.scope, quiet_s, ctx.profile.run.quiet_timeout_s)
        after = [ctx.sampler.reading(r) for r in roles]
        end, used = ctx.clock(), _spent(joules, ctx.energy.read())
        cost = [spent(a, b) for a, b in zip(before, after, strict=True)]
        ctx.write(
            Window(
                place.scope,
                place.system,
                place.history,
                phase,
                bucket,
                unit,
                start,
                end,
                min(quiet_s, waited if waited is not None else ctx.profile.run.quiet_timeout_s),
                cost[0].cpu_s,
                cost[1].cpu_s,
                cost[2].cpu_s,
                cost[0].wait_s,
                cost[1].wait_s,
                used,
                ctx.energy.source,
                ctx.energy.scope,
                place.epoch,
            )
        )
        if waited is None:
            limit = ctx.profile.run.quiet_timeout_s
            place.failure(ctx, "quiet", unit, "not_quiet", f"calls still in flight after {limit} s")


def _spent(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before
