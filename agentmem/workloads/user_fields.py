"""Fields of a user's conversation file, with complaints that say where and what."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agentmem.errors import DataError, nearest
from agentmem.memory import Turn
from agentmem.workloads.base import Question


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the file something stands, for messages."""

    where: str

    def at(self, step: str) -> Place:
        """A place further in."""
        return Place(f"{self.where}, {step}")

    def error(self, field: str, message: str) -> DataError:
        return DataError(f"{self.where}: field {field!r}: {message}")

    def object(self, raw: Any) -> None:
        if not isinstance(raw, dict):
            raise DataError(f"{self.where}: expected an object {{...}}, found {_kind(raw)}")

    def check(self, raw: Any, required: tuple[str, ...], optional: tuple[str, ...]) -> None:
        """An object with the required fields and no unknown ones."""
        self.object(raw)
        known = [*required, *optional]
        for key in raw:
            if key not in known:
                raise self.error(key, f"unknown; {nearest(key, known)}")
        for key in required:
            if key not in raw:
                raise self.error(key, "missing")

    def text(self, raw: dict[str, Any], field: str, default: str | None = None) -> str:
        """A field that is text; numbers are taken as written."""
        value = raw.get(field, default)
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str) or not value.strip():
            raise self.error(field, f"expected text, found {_kind(value)}")
        if any("\ud800" <= sign <= "\udfff" for sign in value):
            raise self.error(field, "holds half of a surrogate pair, which is no text")
        return value

    def folder(self, raw: dict[str, Any], field: str, default: str) -> str:
        """Text that is also the name of a folder in the run."""
        value = self.text(raw, field, default)
        if value in (".", "..") or "/" in value or not value.isprintable():
            raise self.error(field, f"{value!r} must not hold '/' or control characters")
        if len(value.encode()) > 100:
            raise self.error(field, "may be 100 bytes long at most, for folders are named by it")
        return value

    def list(self, raw: dict[str, Any], field: str, default: Any = None) -> list[Any]:
        value = raw.get(field, default)
        if not isinstance(value, list):
            raise self.error(field, f"expected a list, found {_kind(value)}")
        return value

    def texts(self, raw: dict[str, Any], field: str) -> tuple[str, ...]:
        """A list of texts, or one text alone; () when the field is not there."""
        value = raw.get(field, [])
        items = value if isinstance(value, list) else [value]
        return tuple(self.text({field: item}, field) for item in items)

    def date(self, raw: dict[str, Any]) -> str | None:
        """The field `date`, ISO 8601 with or without a time."""
        if raw.get("date") is None:
            return None
        value = self.text(raw, "date")
        try:
            when = datetime.fromisoformat(value)
        except ValueError as error:
            message = f"{value!r} is not a date like 2024-05-31 or 2024-05-31T18:30"
            raise self.error("date", message) from error
        return when.isoformat() if "T" in value or ":" in value else when.date().isoformat()


def read_turn(raw: Any, default_id: str, at: str | None, place: Place) -> Turn:
    """`text` and `speaker`; `role` defaults to user, or assistant for a speaker of that name."""
    place.check(raw, required=("speaker", "text"), optional=("role", "id"))
    speaker = place.text(raw, "speaker")
    guess = "assistant" if speaker.strip().lower() == "assistant" else "user"
    role = place.text(raw, "role", guess)
    if role not in ("user", "assistant"):
        raise place.error("role", f"must be user or assistant, not {role!r}")
    return Turn(place.text(raw, "id", default_id), speaker, role, place.text(raw, "text"), at)


def read_question(raw: Any, default_id: str, place: Place) -> Question:
    """`question` and `answers` (any one is right), or `abstain` where it cannot be known."""
    optional = ("id", "answer", "answers", "abstain", "category", "stale", "evidence")
    place.check(raw, required=("question",), optional=optional)
    golds = place.texts(raw, "answers") or place.texts(raw, "answer")
    abstain = raw.get("abstain", False)
    if not isinstance(abstain, bool):
        raise place.error("abstain", f"must be true or false, not {abstain!r}")
    if not golds and not abstain:
        raise place.error("answers", "missing; give answers, or abstain = true")
    return Question(
        place.text(raw, "id", default_id),
        place.text(raw, "question"),
        place.text(raw, "category", "abstain" if abstain else "question"),
        golds,
        place.texts(raw, "stale"),
        abstain=abstain,
        evidence=place.texts(raw, "evidence"),
    )


def _kind(value: Any) -> str:
    """What a value is, in JSON's words."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return "empty text" if not value.strip() else "text"
    names = {
        bool: "true/false",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), type(value).__name__)
