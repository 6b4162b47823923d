"""What a run tells whoever watches it: one small interface, and one that says nothing."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives events from the runner's thread; must return quickly."""

    def note(self, text: str) -> None:
        """Something worth a line: a download, an environment built, a failure lived through."""

    def begin(self, system: str, phase: str, total: int) -> None:
        """`system` enters `phase` with `total` units or questions ahead."""

    def step(self, system: str, phase: str, done: int) -> None:
        """`done` of the announced units are finished."""

    def tokens(self, input_tokens: int, output_tokens: int) -> None:
        """Tokens of one finished call."""


class Silent:
    """Progress that goes nowhere."""

    def note(self, text: str) -> None: ...

    def begin(self, system: str, phase: str, total: int) -> None: ...

    def step(self, system: str, phase: str, done: int) -> None: ...

    def tokens(self, input_tokens: int, output_tokens: int) -> None: ...
