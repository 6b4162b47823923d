"""From the parts of a step to the tensors of a forward pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from agentmem.engine.batch import Batch
from agentmem.engine.kv.layout import NULL_BLOCK, KVPages
from agentmem.engine.kv.manager import KVManager
from agentmem.engine.scheduler import Part


def assemble(parts: Sequence[Part], kv: KVManager) -> Batch:
    """One batch of all parts, in their order."""
    tokens: list[int] = []
    positions: list[int] = []
    outputs: list[int] = []
    starts = [0]
    for part in parts:
        tokens += part.sequence.tokens[part.start : part.start + part.known]
        tokens += part.drafts
        positions += range(part.start, part.start + part.rows)
        starts.append(len(tokens))
        outputs += range(len(tokens) - part.outputs, len(tokens))
    groups = range(len(kv.specs))
    return Batch(
        tokens=torch.tensor(tokens),
        positions=torch.tensor(positions),
        starts=torch.tensor(starts, dtype=torch.int32),
        contexts=torch.tensor([p.start + p.rows for p in parts], dtype=torch.int32),
        tables=tuple(_tables(parts, kv, group) for group in groups),
        slots=tuple(_slots(parts, kv, group) for group in groups),
        outputs=torch.tensor(outputs, dtype=torch.int64),
    )


def copy_shared(parts: Sequence[Part], pages: Sequence[KVPages]) -> None:
    """Copy the half-filled blocks that these sequences shared, in all layers.

    May be done twice: the sources stay as they are until the step is committed.
    """
    for part in parts:
        assert part.sequence.holding is not None
        for group, source, target in part.sequence.holding.copies:
            own = pages[group]
            own.data[:, :, target] = own.data[:, :, source]
            if own.scales is not None:
                own.scales[:, :, target] = own.scales[:, :, source]


def _tables(parts: Sequence[Part], kv: KVManager, group: int) -> torch.Tensor:
    rows = []
    for part in parts:
        assert part.sequence.holding is not None
        rows.append(kv.table(part.sequence.holding, group))
    wide = max(map(len, rows))
    padded = [row + [NULL_BLOCK] * (wide - len(row)) for row in rows]
    return torch.tensor(padded, dtype=torch.int32)


def _slots(parts: Sequence[Part], kv: KVManager, group: int) -> torch.Tensor:
    slots: list[int] = []
    for part in parts:
        assert part.sequence.holding is not None
        slots += kv.slots(part.sequence.holding, group, part.start, part.start + part.rows)
    return torch.tensor(slots)
