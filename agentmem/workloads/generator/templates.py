"""The texts of the generator, read from `texts/*.toml`, and how a slot is filled."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import product
from typing import Any


@dataclass(frozen=True, slots=True)
class Attribute:
    """Something that has one value at a time, and the sentences that say or ask it."""

    key: str
    noun: str
    plural: str
    values: tuple[str, ...]
    statements: tuple[str, ...]
    near: tuple[str, ...]
    """Sentences that name a value that never became true."""
    current: tuple[str, ...]
    previous: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """Frames of talk that is never asked about, and the words for their slots."""

    key: str
    slots: Mapping[str, tuple[str, ...]]
    user: tuple[str, ...]
    reply: tuple[str, ...]


def _read(name: str) -> dict[str, Any]:
    folder = resources.files("agentmem.workloads.generator") / "texts"
    return tomllib.loads((folder / name).read_text(encoding="utf-8"))


@cache
def attributes() -> Mapping[str, Attribute]:
    """All attributes by key."""
    tables = _read("attributes.toml") | _read("attributes_more.toml")
    return {key: _attribute(key, table) for key, table in tables.items()}


def _attribute(key: str, table: dict[str, Any]) -> Attribute:
    values = table.get("values") or [" ".join(parts) for parts in product(*table["parts"])]
    lists = ("statements", "near", "current", "previous")
    return Attribute(
        key, table["noun"], table["plural"], tuple(values), *(tuple(table[n]) for n in lists)
    )


@cache
def topics() -> tuple[Topic, ...]:
    """All topics of filler talk."""
    return tuple(
        Topic(
            key,
            {slot: tuple(table[slot]) for slot in ("a", "b", "c")},
            tuple(table["user"]),
            tuple(table["reply"]),
        )
        for key, table in _read("filler.toml").items()
    )


@cache
def people() -> Mapping[str, tuple[str, ...]]:
    """Names, relations, and the lines around a fact. Names go by `female` and `male`."""
    lines: dict[str, tuple[str, ...]] = {}
    for key, value in _read("people.toml").items():
        if isinstance(value, dict):
            lines |= {f"{key}-{kind}": tuple(words) for kind, words in value.items()}
        else:
            lines[key] = tuple(value)
    return lines


def all_names() -> tuple[str, ...]:
    """Every first name."""
    return people()["names-female"] + people()["names-male"]


def say(template: str, subject: str | None, value: str) -> str:
    """A statement about the user (`subject` None, first person) or about somebody by name."""
    possessive = "my" if subject is None else f"{subject}'s"
    words = {
        "{S}": subject or "I",
        "{O}": subject or "me",
        "{P}": possessive,
        "{P^}": possessive[0].upper() + possessive[1:],
        "{V}": value,
    }
    for slot, word in words.items():
        template = template.replace(slot, word)
    return template


def fill(template: str, words: Mapping[str, str]) -> str:
    """A filler frame: `{a}` the word, `{a^}` with a capital, `{a~}` without its article."""
    for slot, word in words.items():
        template = template.replace(f"{{{slot}}}", word)
        template = template.replace(f"{{{slot}^}}", word[0].upper() + word[1:])
        template = template.replace(f"{{{slot}~}}", word.removeprefix("a ").removeprefix("an "))
    return template
