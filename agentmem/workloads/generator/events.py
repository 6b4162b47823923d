"""What happened in a simulated life, in order, and what can be asked of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """From `session` on, `attribute` of `person` is `value`.

    With `source` it is hearsay: that person said so, and no other query believes it.
    """

    person: str
    attribute: str
    value: str
    session: int
    """Number of the fact session, from 0; a later session is a later date."""
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Introduction:
    """`person` is the user's `relation`, said in `session`."""

    person: str
    relation: str
    session: int


Happening = Event | Introduction


@dataclass(frozen=True, slots=True)
class EventLog:
    """Everything that happened, earliest first."""

    user: str
    events: tuple[Event, ...]
    introductions: tuple[Introduction, ...]

    def values(self, person: str, attribute: str) -> tuple[Event, ...]:
        """All values one after another, hearsay left out."""
        return tuple(
            event
            for event in self.events
            if event.person == person and event.attribute == attribute and event.source is None
        )

    def heard(self, source: str, person: str, attribute: str) -> tuple[Event, ...]:
        """What `source` said about it, in order."""
        return tuple(
            event
            for event in self.events
            if (event.source, event.person, event.attribute) == (source, person, attribute)
        )

    def introduction(self, relation: str) -> Introduction | None:
        """Who the user's `relation` is; the last introduction holds."""
        found = [i for i in self.introductions if i.relation == relation]
        return found[-1] if found else None
