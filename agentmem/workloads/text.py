"""Plain text of turns and sessions: who said what, and when.

A line is `Speaker: text` (the bare text where a turn has no speaker). A session is a dated heading
and its lines; a turn alone carries the date in front. The heading is `[8 May 2023, 13:56]`.
"""

from __future__ import annotations

from datetime import datetime

from agentmem.memory import Turn
from agentmem.workloads.base import Conversation, Session

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)


def date_label(at: str | None) -> str:
    """`8 May 2023, 13:56` from ISO 8601 (without the time when it has none); "" for None."""
    if at is None:
        return ""
    when = datetime.fromisoformat(at)
    day = f"{when.day} {MONTHS[when.month - 1]} {when.year}"
    return f"{day}, {when.hour:02}:{when.minute:02}" if "T" in at else day


def heading(at: str | None) -> str:
    """`[8 May 2023, 13:56]`, or "" without a date."""
    return f"[{date_label(at)}]" if at else ""


def line(turn: Turn) -> str:
    """One turn as `Speaker: text`."""
    return f"{turn.speaker}: {turn.text}" if turn.speaker else turn.text


def dated_line(turn: Turn) -> str:
    """One turn that stands alone, its date in front."""
    head = heading(turn.at)
    return f"{head} {line(turn)}" if head else line(turn)


def block(turns: tuple[Turn, ...], at: str | None) -> str:
    """A dated heading and the turns below it, one a line."""
    head = heading(at)
    return "\n".join(([head] if head else []) + [line(turn) for turn in turns])


def session_text(session: Session) -> str:
    """A session as plain text."""
    return block(session.turns, session.at)


def history_text(conversation: Conversation) -> str:
    """The whole history as plain text, a blank line between sessions."""
    return "\n\n".join(session_text(session) for session in conversation.sessions)
