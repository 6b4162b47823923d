"""Words for what is asked."""

from __future__ import annotations

from agentmem.workloads.generator.asks import Ask
from agentmem.workloads.generator.stream import Stream
from agentmem.workloads.generator.templates import Attribute, attributes


def question_text(ask: Ask, user: str, stream: Stream) -> str:
    """One question in the third person; everybody is named or called by relation."""
    name = f"{user}'s {ask.relation}" if ask.relation else ask.person
    if ask.kind == "order":
        first, second = ask.values
        return f"Which did {user} report first: {first} or {second}?"
    attribute = attributes()[ask.attribute]
    if ask.kind in ("count", "duration", "aggregate"):
        return _computed(ask, attribute, name)
    pool = attribute.previous if ask.kind == "previous" else attribute.current
    text = stream.pick(pool).replace("{N}", name)
    if ask.kind == "source-conflict":
        return f"According to {ask.source}, {text[0].lower()}{text[1:]}"
    return text


def _computed(ask: Ask, attribute: Attribute, name: str) -> str:
    if ask.kind == "count":
        return f"How many different {attribute.plural} has {name} had in all?"
    if ask.kind == "aggregate":
        return f"Which {attribute.plural} has {name} had, from the oldest to the newest?"
    first, second = ask.values
    return f"How many weeks after {name} reported {first} as the {attribute.noun} was it {second}?"
