"""The reference tokenizer of a workload, as the little that workloads need of it."""

from __future__ import annotations

import re
from typing import Protocol


class Counter(Protocol):
    """Counts and cuts text; any tokenizer of `modelfiles` is one."""

    name: str

    def count(self, text: str) -> int: ...

    def cut(self, text: str, n_tokens: int) -> list[str]: ...


def reference(name: str) -> Counter:
    """The named reference tokenizer (`words-v1` needs no files, `smollm2` a fetched model)."""
    from agentmem.modelfiles.tokenizer import reference_tokenizer

    try:
        return reference_tokenizer(name)
    except NotImplementedError:
        return _Words()


class _Words:
    """Stand-in until `words-v1` is there."""

    name = "words-v1"
    pattern = re.compile(r"\s*(?:\w+|[^\w\s])|\s+$")

    def count(self, text: str) -> int:
        return len(self.pattern.findall(text))

    def cut(self, text: str, n_tokens: int) -> list[str]:
        found = self.pattern.findall(text)
        return ["".join(found[i : i + n_tokens]) for i in range(0, len(found), n_tokens)]
