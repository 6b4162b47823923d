"""Reading a JSON body: a wrong type is a 400 that names the field, null counts as absent."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, NoReturn

from aiohttp import web

from agentmem.engine.api.errors import ApiError, bad_request
from agentmem.engine.api.limits import LIMITS

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class Fields:
    """Typed access to a request body. `raw` is the parsed object, unknown fields included."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw

    def get(self, name: str) -> Any:
        """The value as sent."""
        return self.raw.get(name)

    def text(self, name: str) -> str | None:
        """A string, or None."""
        value = self.raw.get(name)
        if value is not None and not isinstance(value, str):
            _wrong(name, "a string", value)
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean."""
        value = self.raw.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            _wrong(name, "a boolean", value)
        return value

    def integer(self, name: str, low: int, high: int) -> int | None:
        """A whole number in low..high, or None."""
        value = self.raw.get(name)
        if value is None:
            return None
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not whole:
            _wrong(name, "an integer", value)
        if not low <= value <= high:
            raise bad_request(f"{name} must be between {low} and {high}", name)
        return int(value)

    def number(self, name: str, low: float, high: float) -> float | None:
        """A number in low..high, or None."""
        value = self.raw.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            _wrong(name, "a number", value)
        if not low <= value <= high:
            raise bad_request(f"{name} must be between {low:g} and {high:g}", name)
        return float(value)

    def table(self, name: str) -> dict[str, Any] | None:
        """A JSON object, or None."""
        value = self.raw.get(name)
        if value is not None and not isinstance(value, dict):
            _wrong(name, "an object", value)
        return value

    def strings(self, name: str, most: int) -> tuple[str, ...]:
        """A string or a list of up to `most` non-empty strings; empty when absent."""
        value = self.raw.get(name)
        items = [] if value is None else [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(s, str) and s for s in items):
            _wrong(name, "a non-empty string or a list of them", value)
        if len(items) > most:
            raise bad_request(f"{name} takes at most {most} strings", name)
        return tuple(items)


async def read_fields(request: web.Request) -> Fields:
    """The body as a JSON object; 400 when it is something else, 413 when it is too large."""
    limit_s = request.app[LIMITS].upload_s
    try:
        async with asyncio.timeout(limit_s):
            data = await request.read()
    except TimeoutError:
        message = f"the body did not arrive within {limit_s:g} seconds"
        raise ApiError(408, message, code="upload_timeout") from None
    except web.RequestPayloadError as err:  # e.g. not compressed as its header says
        reason = " ".join(str(err).split()).removeprefix("400, message: ")
        raise bad_request(f"the body cannot be read: {reason}", code="invalid_body") from None
    try:
        raw = json.loads(data, parse_constant=_no_constant)
        if _SURROGATE.search(data):
            # Halves of a pair survive parsing, and no tokenizer takes them.
            json.dumps(raw, ensure_ascii=False).encode()
    except RecursionError:
        raise bad_request("the body is nested too deeply", code="invalid_json") from None
    except ValueError as err:
        raise bad_request(f"the body is not valid JSON: {err}", code="invalid_json") from None
    if not isinstance(raw, dict):
        raise bad_request("the body must be a JSON object", code="invalid_json")
    return Fields(raw)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _wrong(name: str, wanted: str, value: Any) -> NoReturn:
    raise bad_request(f"{name} must be {wanted}, not {type(value).__name__}", name)


def is_ids(value: Any) -> bool:
    """A list of whole numbers."""
    return isinstance(value, list) and all(type(one) is int for one in value)


def check_ids(ids: list[int], width: int, param: str) -> list[int]:
    """The ids, all inside the vocabulary; 400 otherwise."""
    if not all(0 <= token < width for token in ids):
        raise bad_request(f"{param} has token ids outside the vocabulary of {width}", param)
    return ids
