"""Cut a conversation into ingest units: turn, pair, session, or chunk of n tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from agentmem.memory import Turn, Unit
from agentmem.workloads.base import Conversation, History, WorkloadSpec
from agentmem.workloads.text import block, dated_line, heading, history_text, line, session_text
from agentmem.workloads.tokens import Counter


def cut(conversation: Conversation, spec: WorkloadSpec, counter: Counter) -> History:
    """The history of one conversation in the spec's ingest unit, measured with `counter`."""
    whole = history_text(conversation)
    makers = {"turn": _turns, "pair": _pairs, "session": _sessions}
    if spec.unit == "chunk":
        pieces = counter.cut(whole, spec.chunk_tokens)
        units = tuple(_chunks(conversation, pieces))
    else:
        units = tuple(makers[spec.unit](conversation))
    return History(
        conversation.history,
        conversation.user,
        units,
        conversation.questions,
        source_tokens=counter.count(whole),
        source_chars=len(whole),
        unit_tokens=tuple(counter.count(unit.text) for unit in units),
    )


def _turns(conversation: Conversation) -> Iterator[Unit]:
    for session in conversation.sessions:
        for turn in session.turns:
            unit_id = f"{conversation.history}/{turn.source_id}"
            yield Unit(unit_id, conversation.user, dated_line(turn), (turn,), turn.at)


def _pairs(conversation: Conversation) -> Iterator[Unit]:
    """Two turns of one session; the last of an odd session stands alone."""
    for session in conversation.sessions:
        for start in range(0, len(session.turns), 2):
            turns = session.turns[start : start + 2]
            unit_id = f"{conversation.history}/{session.session_id}/pair-{start // 2 + 1}"
            yield Unit(unit_id, conversation.user, block(turns, session.at), turns, session.at)


def _sessions(conversation: Conversation) -> Iterator[Unit]:
    for session in conversation.sessions:
        unit_id = f"{conversation.history}/{session.session_id}"
        text = session_text(session)
        yield Unit(unit_id, conversation.user, text, session.turns, session.at)


def _chunks(conversation: Conversation, pieces: list[str]) -> Iterator[Unit]:
    """One unit per piece. Its turns hold the part of their text that lies in the piece."""
    spans = list(_spans(conversation))
    start, first, at = 0, 0, None
    for number, piece in enumerate(pieces, start=1):
        end = start + len(piece)
        while first < len(spans) and spans[first][1] <= start:
            first += 1
        inside: list[Turn] = []
        for low, high, body, turn in spans[first:]:
            if low >= end:
                break
            part = _part(turn, body, max(low, start), min(high, end))
            if part.text:
                inside.append(part)
        at = inside[0].at if inside else at
        unit_id = f"{conversation.history}/chunk-{number}"
        yield Unit(unit_id, conversation.user, piece, tuple(inside), at)
        start = end


def _spans(conversation: Conversation) -> Iterator[tuple[int, int, int, Turn]]:
    """(start, end, start of the spoken text, turn) of each line in the history's text."""
    position = 0
    for session in conversation.sessions:
        head = heading(session.at)
        position += len(head) + 1 if head else 0
        for turn in session.turns:
            length = len(line(turn))
            yield position, position + length, position + length - len(turn.text), turn
            position += length + 1
        position += 1


def _part(turn: Turn, body: int, low: int, high: int) -> Turn:
    """The turn with the characters of its text between `low` and `high` of the history."""
    text = turn.text[max(low - body, 0) : max(high - body, 0)]
    return turn if text == turn.text else dataclasses.replace(turn, text=text)
