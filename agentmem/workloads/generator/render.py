"""Put happenings into words, and lay facts and filler out over dated sessions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from agentmem.memory import Turn
from agentmem.workloads.base import Session, Style
from agentmem.workloads.generator.calendar import Calendar
from agentmem.workloads.generator.events import Event, Happening, Introduction
from agentmem.workloads.generator.filler import Exchange
from agentmem.workloads.generator.life import Life
from agentmem.workloads.generator.stream import Stream
from agentmem.workloads.generator.templates import attributes, people, say

ASSISTANT = "Assistant"
LEAD_SHARE = TAIL_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class Item:
    """One exchange in its place: a fact session, or extra session `extra` (from 0) after it."""

    session: int
    extra: int | None
    rank: int
    """Order within the session."""
    exchange: Exchange
    happening: Happening | None = None


def fact_items(life: Life, style: Style, *labels: object) -> list[Item]:
    """One exchange per event and introduction, no template of one attribute twice if avoidable."""
    stream = Stream(*labels, "words")
    decks: dict[str, list[str]] = {}
    items: list[Item] = []
    happenings: list[Happening] = [*life.log.introductions, *life.log.events]
    for number, happening in enumerate(happenings):
        if isinstance(happening, Introduction):
            template = _draw(decks, "introductions", people()["introductions"], stream)
            text = template.replace("{R}", happening.relation).replace("{N}", happening.person)
            replies = "introduction_replies"
        else:
            text = _statement(life, happening, decks, stream)
            replies = "replies"
        reply = _draw(decks, replies, people()[replies], stream)
        tails = people()["tails"] if isinstance(happening, Event) else ()
        exchange = _dress(text, reply, tails, style, stream)
        rank = Stream(*labels, "rank", "fact", number).bits()
        items.append(Item(happening.session, None, rank, exchange, happening))
    return items


def _statement(life: Life, event: Event, decks: dict[str, list[str]], stream: Stream) -> str:
    templates = attributes()[event.attribute].statements
    subject = None if event.person == life.log.user else event.person
    if event.source is None:
        return say(_draw(decks, event.attribute, templates, stream), subject, event.value)
    plain = [t for t in templates if t.startswith(("{S}", "{P^}"))]
    return f"According to {event.source}, " + say(stream.pick(plain), subject, event.value)


def _draw(decks: dict[str, list[str]], key: str, cards: tuple[str, ...], stream: Stream) -> str:
    """The next card of a shuffled deck; a fresh deck when it is empty."""
    if not decks.get(key):
        decks[key] = stream.shuffled(cards)
    return decks[key].pop()


def _dress(text: str, reply: str, tails: tuple[str, ...], style: Style, stream: Stream) -> Exchange:
    """The bare fact in a fact list; with a few words around it in a conversation."""
    if style == "facts":
        return Exchange(text, None)
    lead = stream.pick(people()["leads"]) + " " if stream.chance(LEAD_SHARE) else ""
    tail = " " + stream.pick(tails) if tails and stream.chance(TAIL_SHARE) else ""
    return Exchange(lead + text + tail, reply)


@dataclass(frozen=True, slots=True)
class Script:
    """Sessions as they are read, and the turn that says each happening."""

    sessions: tuple[Session, ...]
    turn_of: dict[Happening, Turn]


def assemble(items: list[Item], calendar: Calendar, user: str) -> Script:
    """Sessions in order of date, exchanges in order of rank; ids `s3:t5`, `s3.17:t2`."""
    groups: dict[tuple[datetime, str], list[Item]] = {}
    for number, stamp in enumerate(calendar.stamps):
        groups[stamp, f"s{number + 1}"] = []
    for item in items:
        if item.extra is None:
            key = calendar.stamps[item.session], f"s{item.session + 1}"
        else:
            stamp = calendar.between(item.session, item.extra)
            key = stamp, f"s{item.session + 1}.{item.extra + 1}"
        groups.setdefault(key, []).append(item)
    sessions: list[Session] = []
    turn_of: dict[Happening, Turn] = {}
    for (stamp, name), inside in sorted(groups.items(), key=lambda pair: pair[0]):
        turns: list[Turn] = []
        for item in sorted(inside, key=lambda item: item.rank):
            at = stamp.isoformat()
            turn = Turn(f"{name}:t{len(turns) + 1}", user, "user", item.exchange.user, at)
            turns.append(turn)
            if item.happening is not None:
                turn_of[item.happening] = turn
            if item.exchange.reply is not None:
                reply_id = f"{name}:t{len(turns) + 1}"
                turns.append(Turn(reply_id, ASSISTANT, "assistant", item.exchange.reply, at))
        if turns:
            sessions.append(Session(name, stamp.isoformat(), tuple(turns)))
    return Script(tuple(sessions), turn_of)
