"""What a step cost and whose it was: modelled work, and the measured time split by it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentmem.engine.config import DecoderConfig
from agentmem.engine.kernels.weights import Weight
from agentmem.engine.kv.layout import GroupSpec, KVPages
from agentmem.engine.models.decoder import Decoder
from agentmem.engine.request import TrafficClass

BANDWIDTH_BYTES_S = 25e9
PEAK_OPERATIONS_S = 400e9
"""Round figures of a small CPU; only their ratio decides how a step is split."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one sequence has in a step: its last `rows` of `context` positions, `outputs` logits."""

    rows: int
    context: int
    outputs: int


@dataclass(frozen=True, slots=True)
class Share:
    """One sequence's part of a step. All parts add up to the step exactly."""

    request_id: str
    traffic_class: TrafficClass
    rows: int
    wall_ns: int
    cpu_ns: int
    read_bytes: int
    operations: int


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step in the engine's journal; `began_s` is on the monotonic clock."""

    number: int
    began_s: float
    wall_ns: int
    cpu_ns: int
    rows: int
    read_bytes: int
    operations: int
    completed: bool
    """False for a pass given up between layers: its time counts, its results do not."""
    shares: tuple[Share, ...]

    @classmethod
    def of(
        cls,
        number: int,
        began_s: float,
        wall_ns: int,
        cpu_ns: int,
        completed: bool,
        shares: tuple[Share, ...],
    ) -> StepRow:
        """A row, with its sums."""
        return cls(
            number=number,
            began_s=began_s,
            wall_ns=wall_ns,
            cpu_ns=cpu_ns,
            rows=sum(s.rows for s in shares),
            read_bytes=sum(s.read_bytes for s in shares),
            operations=sum(s.operations for s in shares),
            completed=completed,
            shares=shares,
        )


class CostModel:
    """Bytes and operations of a step, from the model's shape.

    The weights are read once a step and shared evenly by its sequences; the head only by those
    that want logits. An operation is a multiplication or an addition.
    """

    def __init__(self, decoder: Decoder, pages: Sequence[KVPages]) -> None:
        layers, head = decoder.weights.layers, decoder.weights.head
        matrices = [m for layer in layers for m in layer.matrices]
        self._block_bytes = sum(m.size_bytes for m in matrices)
        self._head_bytes = head.size_bytes
        self._row_operations = 2 * sum(_elements(m) for m in matrices)
        self._output_operations = 2 * _elements(head)
        self._groups = decoder.groups
        self._position_bytes = [p.block_bytes // p.block_size for p in pages]
        self._pair_operations = [_pair_operations(decoder.config, g) for g in decoder.groups]

    def step(self, parts: Sequence[Work]) -> tuple[list[int], list[int]]:
        """Bytes read and operations of each sequence."""
        wanting = [part.outputs > 0 for part in parts]
        blocks = split(self._block_bytes, [1] * len(parts))
        heads = split(self._head_bytes if any(wanting) else 0, [int(w) for w in wanting])
        read = [
            b + h + self._state_bytes(part) for part, b, h in zip(parts, blocks, heads, strict=True)
        ]
        return read, [self._operations(part) for part in parts]

    def _state_bytes(self, part: Work) -> int:
        """Keys and values that its rows see, each read once."""
        total = 0
        for group, size in zip(self._groups, self._position_bytes, strict=True):
            seen = part.context
            if group.window is not None:
                seen = min(seen, part.rows + group.window - 1)
            total += seen * size
        return total

    def _operations(self, part: Work) -> int:
        total = part.rows * self._row_operations + part.outputs * self._output_operations
        for group, each in zip(self._groups, self._pair_operations, strict=True):
            total += each * pairs(part.rows, part.context, group.window)
        return total


def pairs(rows: int, context: int, window: int | None) -> int:
    """How many (query, key) pairs the last `rows` of `context` positions make."""

    def up_to(n: int) -> int:
        short = n if window is None else min(n, window)
        return short * (short + 1) // 2 + (n - short) * short

    return up_to(context) - up_to(context - rows)


def split(total: int, weights: Sequence[int]) -> list[int]:
    """A whole number split by weights into whole numbers that add up to it exactly.

    What rounding leaves goes to the largest (the first of several). Without any weight, evenly.
    """
    if not weights:
        return []
    if not any(weights):
        weights = [1] * len(weights)
    whole = sum(weights)
    parts = [total * weight // whole for weight in weights]
    largest = max(range(len(weights)), key=weights.__getitem__)
    parts[largest] += total - sum(parts)
    return parts


def modelled_ps(read_bytes: int, operations: int) -> int:
    """Picoseconds that the work takes at least: by bandwidth or by arithmetic."""
    seconds = max(read_bytes / BANDWIDTH_BYTES_S, operations / PEAK_OPERATIONS_S)
    return max(1, round(seconds * 1e12))


def shares(
    model: CostModel,
    parts: Iterable[tuple[str, TrafficClass, Work]],
    wall_ns: int,
    cpu_ns: int,
) -> tuple[Share, ...]:
    """A step's time split over its sequences by modelled work."""
    parts = list(parts)
    read, operations = model.step([work for _, _, work in parts])
    weights = [modelled_ps(b, o) for b, o in zip(read, operations, strict=True)]
    walls, cpus = split(wall_ns, weights), split(cpu_ns, weights)
    return tuple(
        Share(name, kind, work.rows, walls[i], cpus[i], read[i], operations[i])
        for i, (name, kind, work) in enumerate(parts)
    )


def _pair_operations(config: DecoderConfig, group: GroupSpec) -> int:
    """Of one (query, key) pair in all layers of a group: a product with the key, one with the
    value.
    """
    return 4 * config.heads * config.head_dim * len(group.layers)


def _elements(weight: Weight) -> int:
    return weight.rows * weight.columns
