"""What every part of one run shares, and where in the run a row belongs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from agentmem.gateway.server import Gateway
from agentmem.meters.base import EnergyMeter
from agentmem.meters.sampler import Sampler
from agentmem.profile import Profile
from agentmem.records import Failure, Mark, MarkKind, Row
from agentmem.runner.engine import ServerFacts, wait_until_served
from agentmem.runner.folder import RunFolder
from agentmem.runner.keeper import Keeper
from agentmem.runner.progress import Progress
from agentmem.runner.reader import Room
from agentmem.telemetry.journal import Journal

Taps = dict[str, Callable[[Row], None]]


@dataclass(frozen=True, slots=True)
class Context:
    """The parts of a run in progress. Owned by `runner.run`, used by `runner.drive`."""

    profile: Profile
    run_id: str
    """This run's own, by which model servers tell its caches from another's."""
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
    taps: Taps = field(default_factory=dict)
    """By scope: who else sees its calls begin and end, on the gateway's threads."""

    def write(self, row: Row) -> None:
        self.journal.write(row)

    def trouble(self, scope: str, *operations: str) -> int:
        """Broken calls of a scope, or some operations of it, and engine restarts so far."""
        broken = self.gateway.transport_failures(scope, *operations)
        return broken + (self.keeper.restarts if self.keeper else 0)

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
    repeat: int = 0

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
