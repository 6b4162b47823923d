"""Verbs and their values as JSON objects; wrong types from an adapter are named here."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from agentmem.memory import Answer, Called, Endpoints, Entry, Limits, Retrieved, Stored, Turn, Unit


def call(system: Any, verb: str, args: Mapping[str, Any]) -> Any:
    """Run one verb of a `MemorySystem` and give its value as JSON."""
    if verb == "open":
        endpoints, limits = Endpoints(**args["endpoints"]), Limits(**args["limits"])
        return system.open(args["dir"], endpoints, limits)
    if verb == "construct":
        return _stored(system.construct(unit_from(args["unit"])))
    if verb == "retrieve":
        return _retrieved(system.retrieve(args["user"], args["question"], args["k"]))
    if verb == "answer":
        return _answer(system.answer(args["user"], args["question"]))
    if verb == "forget":
        if args["user"] is None and not args["unit_ids"]:
            raise ValueError("forget needs a user or unit ids")
        return _integer(system.forget(args["user"], tuple(args["unit_ids"])), "forget")
    if verb == "footprint":
        sizes = system.footprint()
        return {str(part): _integer(size, f"footprint {part}") for part, size in sizes.items()}
    if verb == "snapshot":
        return system.snapshot(args["to"])
    if verb in ("flush", "maintain", "close"):
        return getattr(system, verb)()
    raise ValueError(f"unknown verb {verb!r}")


def unit_from(raw: Mapping[str, Any]) -> Unit:
    turns = tuple(Turn(**turn) for turn in raw["turns"])
    return Unit(**{**raw, "turns": turns})


def _integer(value: Any, what: str) -> int:
    number = int(value)
    if number != value or number < 0:
        raise TypeError(f"{what}: {value!r} is not a whole number of at least 0")
    return number


def _optional(value: Any, what: str) -> int | None:
    return None if value is None else _integer(value, what)


def _number(value: Any) -> float | None:
    """A float of JSON; not-a-number and infinity are unknown."""
    return float(value) if value is not None and math.isfinite(value) else None


def _stored(value: Any) -> dict[str, Any]:
    if not isinstance(value, Stored):
        raise TypeError(f"construct returned {type(value).__name__}, not Stored")
    counts = {name: _integer(getattr(value, name), name) for name in _COUNTS}
    note = None if value.note is None else str(value.note)
    version = _optional(value.store_version, "store_version")
    return {
        **counts,
        "store_version": version,
        "visible_at": _number(value.visible_at),
        "note": note,
    }


_COUNTS = ("added", "updated", "deleted", "lost")


def _entry(value: Any) -> dict[str, Any]:
    if not isinstance(value, Entry):
        raise TypeError(f"an entry is {type(value).__name__}, not Entry")
    if not isinstance(value.text, str):
        raise TypeError(f"an entry's text is {type(value.text).__name__}, not str")
    ids = None if value.source_ids is None else [str(i) for i in value.source_ids]
    return {"text": value.text, "score": _number(value.score), "source_ids": ids}


def _retrieved(value: Any) -> dict[str, Any]:
    if not isinstance(value, Retrieved):
        raise TypeError(f"retrieve returned {type(value).__name__}, not Retrieved")
    version = _optional(value.version_read, "version_read")
    return {"entries": [_entry(e) for e in value.entries], "version_read": version}


def _answer(value: Any) -> dict[str, Any]:
    if not isinstance(value, Answer):
        raise TypeError(f"answer returned {type(value).__name__}, not Answer")
    version = _optional(value.version_read, "version_read")
    entries = [_entry(e) for e in value.entries]
    calls = [_called(c) for c in value.calls]
    return {"text": str(value.text), "entries": entries, "version_read": version, "calls": calls}


def _called(value: Any) -> dict[str, Any]:
    if not isinstance(value, Called):
        raise TypeError(f"a call of an answer is {type(value).__name__}, not Called")
    if value.phase not in _PHASES:
        raise ValueError(f"a call's phase is {value.phase!r}, not one of {', '.join(_PHASES)}")
    return dataclasses.asdict(value)


_PHASES = ("construction", "retrieval", "generation")


def stored_from(raw: Mapping[str, Any]) -> Stored:
    return Stored(**_known(Stored, raw))


def retrieved_from(raw: Mapping[str, Any]) -> Retrieved:
    return Retrieved(_entries(raw), raw.get("version_read"))


def answer_from(raw: Mapping[str, Any]) -> Answer:
    calls = tuple(Called(**_known(Called, c)) for c in raw.get("calls", ()))
    return Answer(raw["text"], _entries(raw), raw.get("version_read"), calls)


def _entries(raw: Mapping[str, Any]) -> tuple[Entry, ...]:
    return tuple(
        Entry(e["text"], e["score"], None if e["source_ids"] is None else tuple(e["source_ids"]))
        for e in raw["entries"]
    )


def _known(cls: type, raw: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `raw` that `cls` has, so that a newer worker can be read."""
    names = {f.name for f in dataclasses.fields(cls)}
    return {key: value for key, value in raw.items() if key in names}
