"""The reference tokenizer of a workload, as the little that workloads need of it."""

from __future__ import annotations

from typing import Protocol


class Counter(Protocol):
    """Counts and cuts text; any tokenizer of `modelfiles` is one."""

    name: str

    def count(self, text: str) -> int: ...

    def cut(self, text: str, n_tokens: int) -> list[str]: ...


def reference(name: str) -> Counter:
    """The named reference tokenizer (`words-v1` needs no files, `smollm2` a fetched model)."""
    from agentmem.modelfiles.tokenizer import reference_tokenizer

    return reference_tokenizer(name)
