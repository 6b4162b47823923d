"""Dates of sessions. Facts lie whole weeks apart, so that a duration is a whole number of weeks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from agentmem.workloads.generator.stream import Stream

FIRST = datetime(2024, 1, 8)
WEEK = timedelta(weeks=1)


@dataclass(frozen=True, slots=True)
class Calendar:
    """Weeks (from the first) and time stamps of the fact sessions, and the day of the questions."""

    weeks: tuple[int, ...]
    stamps: tuple[datetime, ...]
    end: datetime

    def between(self, session: int, number: int) -> datetime:
        """Time stamp of the `number`-th extra session after a fact session, from 0.

        Base-2 van der Corput points: further numbers fall between earlier ones and move none.
        """
        share, scale, rest = 0.0, 0.5, number + 1
        while rest:
            share, scale, rest = share + scale * (rest & 1), scale / 2, rest >> 1
        after = self.stamps[session + 1] if session + 1 < len(self.stamps) else self.end
        span = (after - self.stamps[session]) - timedelta(hours=2)
        minutes = int(span.total_seconds() / 60 * share)
        return self.stamps[session] + timedelta(hours=1, minutes=minutes)


def draw_calendar(stream: Stream, sessions: int) -> Calendar:
    """Sessions two to seven weeks apart, at a time of day between 8:00 and 20:59."""
    weeks, stamps = [0], []
    for _ in range(sessions - 1):
        weeks.append(weeks[-1] + 2 + stream.below(6))
    for week in weeks:
        time = timedelta(hours=8 + stream.below(13), minutes=stream.below(60))
        stamps.append(FIRST + week * WEEK + time)
    return Calendar(tuple(weeks), tuple(stamps), FIRST + (weeks[-1] + 4) * WEEK)
