"""`response_format`: free text, any JSON object, or the values of a schema."""

from __future__ import annotations

from typing import Any

from agentmem.engine.api.bounds import any_object, bounded
from agentmem.engine.api.errors import bad_request
from agentmem.engine.api.fields import Fields


def read_format(body: Fields) -> dict[str, Any] | None:
    """The bounded schema of the answer, or None for free text. `strict` makes no difference."""
    stated = body.table("response_format")
    if stated is None:
        return None
    kind = stated.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return any_object()
    if kind != "json_schema":
        message = "response_format.type must be text, json_object or json_schema"
        raise bad_request(message, "response_format")
    wrapper = stated.get("json_schema")
    schema = wrapper.get("schema") if isinstance(wrapper, dict) else None
    if not isinstance(schema, dict):
        message = "response_format.json_schema.schema must be a JSON schema"
        raise bad_request(message, "response_format")
    return bounded(schema)
