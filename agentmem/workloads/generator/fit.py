"""Add filler until a history has the wanted number of tokens.

Filler number i is the same whatever the length, and so is its place: a shorter history is contained
in a longer one of the same seed, apart from the few exchanges that trim the length at the end.
"""

from __future__ import annotations

from agentmem.errors import UsageError
from agentmem.workloads.base import Conversation
from agentmem.workloads.generator.calendar import Calendar
from agentmem.workloads.generator.filler import Exchange, Filler
from agentmem.workloads.generator.render import ASSISTANT, Item, Script, assemble
from agentmem.workloads.generator.stream import Stream
from agentmem.workloads.text import heading, history_text
from agentmem.workloads.tokens import Counter

PER_SESSION = 20
"""Filler exchanges of a session, where sessions are added as the history grows."""
SLACK = 150
"""Gap in tokens that is left to be trimmed; costs added up are close to the measured sum only."""
TRIMS = 6
CANDIDATES = 48


class Fitter:
    """Lays out facts and just enough filler."""

    def __init__(
        self, facts: list[Item], calendar: Calendar, user: str, filler: Filler, counter: Counter
    ) -> None:
        self._items, self._calendar, self._user = list(facts), calendar, user
        self._filler, self._counter = filler, counter

    def fit(self, tokens: int, grow: bool, *labels: object) -> Script:
        """The script whose text has about `tokens` tokens. With `grow`, filler past the first
        sessions' share goes to sessions of its own; without, into the sessions that there are."""
        total = self._measure()
        if total > tokens:
            raise UsageError(
                f"workload.history_tokens = {tokens} is too short: the facts alone take {total}"
            )
        number, waiting, slack = 0, None, SLACK
        while tokens - total > slack:
            while total < tokens:
                exchange = waiting or self._filler.exchange(number)
                item, waiting = self._place(number, exchange, grow, labels), None
                total += self._cost(exchange) + self._heading_cost(item)
                self._items.append(item)
                number += 1
            number, waiting = number - 1, self._items.pop().exchange
            slack = max(SLACK, self._cost(waiting))
            total = self._measure()
        self._trim(tokens, labels)
        return assemble(self._items, self._calendar, self._user)

    def _place(
        self, number: int, exchange: Exchange, grow: bool, labels: tuple[object, ...]
    ) -> Item:
        sessions = len(self._calendar.stamps)
        rank = Stream(*labels, "rank", "filler", number).bits()
        beyond = number - sessions * PER_SESSION
        if not grow or beyond < 0:
            return Item(number % sessions, None, rank, exchange)
        extra = beyond // PER_SESSION
        return Item(extra % sessions, extra // sessions, rank, exchange)

    def _trim(self, tokens: int, labels: tuple[object, ...]) -> None:
        """Close the last gap with exchanges chosen for their length."""
        last = len(self._calendar.stamps) - 1
        for step in range(TRIMS):
            gap = tokens - self._measure()
            if abs(gap) <= max(2, tokens // 2000):
                return
            choices = [
                self._filler.exchange(f"trim-{step}-{choice}") for choice in range(CANDIDATES)
            ]
            choices += [Exchange(c.user, None) for c in choices]
            best = min(choices, key=lambda exchange: abs(gap - self._cost(exchange)))
            if abs(gap - self._cost(best)) >= abs(gap):
                return
            rank = Stream(*labels, "rank", "trim", step).bits()
            self._items.append(Item(last, None, rank, best))

    def _cost(self, exchange: Exchange) -> int:
        text = f".\n{self._user}: {exchange.user}"
        if exchange.reply is not None:
            text += f"\n{ASSISTANT}: {exchange.reply}"
        return self._counter.count(text) - self._counter.count(".")

    def _heading_cost(self, item: Item) -> int:
        """Tokens of a new extra session's heading, on its first exchange."""
        if item.extra is None or any(
            (i.session, i.extra) == (item.session, item.extra) for i in self._items[-PER_SESSION:]
        ):
            return 0
        stamp = self._calendar.between(item.session, item.extra).isoformat()
        return self._counter.count(f".\n\n{heading(stamp)}") - self._counter.count(".")

    def _measure(self) -> int:
        script = assemble(self._items, self._calendar, self._user)
        whole = Conversation("", self._user, script.sessions, ())
        return self._counter.count(history_text(whole))
