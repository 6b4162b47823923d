"""Engines in little: a manager with real pages, whose content is told by the tokens."""

from __future__ import annotations

from pathlib import Path

import torch

from agentmem.engine.kv.layout import KVKind, KVPages
from agentmem.engine.kv.ownership import Ledger, Step, no_step
from agentmem.engine.kv.sessionfile import Stamp
from agentmem.engine.kv.transfer import Transfers
from tests.engine.kv.toys import manager, specs


class Engine:
    """Weights "w" and what is given; `run` writes what a pass would."""

    def __init__(
        self,
        *windows: int | None,
        kind: KVKind = "fp32",
        ledger: Path | None = None,
        step: Step = no_step,
        blocks: int = 32,
        **other: str,
    ) -> None:
        groups = specs(*(windows or (None,)))
        self.kv = manager(*windows, blocks=blocks)
        self.pages = [KVPages.empty(spec, blocks, 4, kind) for spec in groups]
        for pages in self.pages:
            pages.data.zero_()
        fields = {"weights": "w", "mode": "bf16", "backend": "torch", "tokenizer": "t"} | other
        stamp = Stamp(
            kind=kind,
            block_size=4,
            groups=Stamp.groups_of(groups),
            identity=self.kv.identity.hex(),
            **fields,
        )
        self.transfers = Transfers(self.kv, self.pages, stamp, Ledger(ledger), step)

    def run(self, tokens: list[int], session: str | None = "s", tenant: str | None = None) -> int:
        """Compute and close; checks that what was cached is what would have been computed."""
        held = self.kv.open(tokens, tenant=tenant, session=session)
        self.check(tokens, held.tables, held.cached)
        while held.length < len(tokens):
            stop = min(len(tokens), held.length + 4)
            assert self.kv.grow(held, stop)
            for group, src, dst in held.copies:
                for part in self._parts(group):
                    part[:, :, dst] = part[:, :, src]
            for group, table in enumerate(held.tables):
                for part in self._parts(group):
                    for p in range(held.length, stop):
                        part[:, :, table[p // 4], :, p % 4] = value(tokens, p)
            self.kv.commit(held, tokens, stop)
        self.kv.close(held)
        self.kv.record(tenant, session, cached=held.cached, computed=len(tokens) - held.cached)
        return held.cached

    def check(self, tokens: list[int], tables: list[list[int]], length: int) -> None:
        for group, table in enumerate(tables):
            for part in self._parts(group):
                for p in range(length):
                    if table[p // 4]:
                        row = part[:, :, table[p // 4], :, p % 4].float()
                        assert torch.all(row == value(tokens, p)), (group, p)

    def _parts(self, group: int) -> list[torch.Tensor]:
        pages = self.pages[group]
        return [pages.data] if pages.scales is None else [pages.data, pages.scales]


def value(tokens: list[int], position: int) -> float:
    """Depends on all tokens up to there; exact in every kind."""
    total = 1
    for token in tokens[: position + 1]:
        total = (31 * total + token) % 101
    return float(total)
