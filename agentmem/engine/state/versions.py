"""What a sequence's state is at one moment, and what a step is about to do with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from agentmem.engine.kv.registry import Session
from agentmem.errors import EngineError

NO_BLOCKS: Mapping[int, int] = MappingProxyType({})


class StateError(EngineError):
    """A use of the store that would mix up states; nothing was changed."""


class Claim(NamedTuple):
    """A hash, and after how many tokens it says the state is."""

    key: bytes
    offset: int


class Hit(NamedTuple):
    """A cached state. With `wait` it was made in this very step: ask again in the next."""

    claim: Claim
    block: int
    wait: bool


class Shown(NamedTuple):
    """What is known of a state that can be found."""

    offset: int
    step: int
    tenant: str | None


@dataclass(frozen=True, slots=True)
class Version:
    """A committed state: counters, and the blocks by column that it needs. Never changes.

    The window stands in `column`, `accepted - 1` tokens into its row; the recurrent states stand
    `accepted - 1` columns on.
    """

    number: int
    computed: int
    column: int
    accepted: int
    blocks: Mapping[int, int]

    @property
    def offset(self) -> int:
        """Tokens by which the window is shifted."""
        return self.accepted - 1

    @property
    def window_block(self) -> int | None:
        """Block of the window; None before the first token."""
        return self.blocks.get(self.column)

    @property
    def state_block(self) -> int | None:
        """Block of the recurrent states."""
        return self.blocks.get(self.column + self.accepted - 1)


@dataclass(frozen=True, slots=True)
class Plan:
    """One step of one sequence: what to read, where to write. Fixed when the step begins.

    The pass reads `source` (see Version) and writes its window to `write[0]` and the recurrent
    state after draft `j` to `write[j]`; it never writes what it reads.
    """

    number: int
    slot: int
    source: Version
    scheduled: int
    drafts: int
    column: int
    write: tuple[int, ...]
    apart: int | None
    """For a checkpoint that would fall between drafts."""
    reused: tuple[int, ...]
    """Those of the blocks that were the slot's own scratch."""

    @property
    def computed(self) -> int:
        """Tokens before the step."""
        return self.source.computed

    @property
    def fresh(self) -> bool:
        """Whether the step begins from no state at all, that is from zeros."""
        return self.source.window_block is None

    @property
    def blocks(self) -> tuple[int, ...]:
        """All that is staged."""
        return self.write if self.apart is None else (*self.write, self.apart)


@dataclass(slots=True)
class SlotCounts:
    """What a sequence did, for its record."""

    hit_tokens: int = 0
    commits: int = 0
    aborts: int = 0
    checkpoints: int = 0
    copied_bytes: int = 0


@dataclass(slots=True, eq=False)
class StateSlot:
    """A running sequence, under one number for as long as it runs. Changed by the store only."""

    number: int
    tenant: str | None
    session: Session | None
    versions: tuple[Version, ...]
    """Those retained, the current one last."""
    spare: tuple[int, ...] = ()
    """Scratch blocks of its own: nobody reads them."""
    plan: Plan | None = None
    written: set[int] = field(default_factory=set)
    published: list[tuple[int, bytes]] = field(default_factory=list)
    """Block and key of each state that it let be found."""
    counts: SlotCounts = field(default_factory=SlotCounts)
    closed: bool = False

    @property
    def current(self) -> Version:
        """The committed state."""
        return self.versions[-1]


class StateCounts(NamedTuple):
    """The store at one moment; commits and later fields since it was made."""

    used_blocks: int
    cached_blocks: int
    free_blocks: int
    block_bytes: int
    slots: int
    readers: int
    commits: int
    aborts: int
    hits: int
    hit_tokens: int
    copied_bytes: int
    evictions: int
