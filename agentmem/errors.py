"""Errors a user can act on. Each carries one line that says what is wrong and what to do."""

from __future__ import annotations


class AgentMemError(Exception):
    """Base of all expected failures; the CLI prints its text on one line and exits `exit_code`."""

    exit_code: int = 1


class UsageError(AgentMemError):
    """A command line, profile or file that cannot be used as given."""

    exit_code = 2


class DataError(AgentMemError):
    """Missing, unreadable or corrupt input data (a data set, a model file, a run folder)."""

    exit_code = 3


class EngineError(AgentMemError):
    """A model server that cannot be reached, started or used."""

    exit_code = 4


class MemorySystemError(AgentMemError):
    """A memory system that cannot be installed, started or driven."""

    exit_code = 5


class AccountingError(AgentMemError):
    """An accounting rule (R1-R11) does not hold for a run."""

    exit_code = 6


def nearest(word: str, known: list[str]) -> str:
    """Hint naming the known word closest to `word`, or the list when nothing is close."""
    import difflib

    match = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if match:
        return f"did you mean {match[0]!r}?"
    return "known: " + ", ".join(sorted(known))
