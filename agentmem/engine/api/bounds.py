"""Default bounds for JSON schemas, so that a small model cannot fill the window inside one value.

What a client leaves open is closed: strings, arrays, free-form objects, numbers. The result allows
a subset of what the client's schema allows, so every answer still validates against the original.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentmem.engine.constraints import GrammarError

Schema = dict[str, Any]

FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
"""Those the grammar knows; others are annotations and are dropped."""
BRANCHES = ("anyOf", "oneOf")
TABLES = ("$defs", "definitions")
OBJECT_KEYS = {"properties", "additionalProperties", "required", "patternProperties"}
ARRAY_KEYS = {"items", "prefixItems", "minItems", "maxItems"}
OPEN = "agentmem-any-"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits where a schema states none. Lengths in characters, counts in entries."""

    string: int = 256
    items: int = 16
    properties: int = 16
    key: int = 64
    depth: int = 3
    """Nesting of values whose schema allows anything."""
    number: int = 10**15
    fraction: float = 1e-6


DEFAULT = Bounds()


def bounded(schema: Schema | bool, bounds: Bounds = DEFAULT) -> Schema:
    """A copy of `schema` with every unbounded part bounded; `$defs` gains helper entries.

    Raises GrammarError when a keyword holds something of the wrong type.
    """
    if not isinstance(schema, dict):
        schema = {}
    try:
        copy = _Closer(bounds).close(schema)
        copy["$defs"] = {**copy.get("$defs", {}), **_anything(bounds)}
    except (TypeError, ValueError, AttributeError, RecursionError) as err:
        raise GrammarError(f"this is no JSON schema: {err}") from None
    return copy


def any_object(bounds: Bounds = DEFAULT) -> Schema:
    """Any JSON object within bounds: what `response_format: json_object` means here."""
    return bounded({"type": "object"}, bounds)


def _anything(bounds: Bounds) -> dict[str, Schema]:
    """Any JSON value of a given depth, as `$defs` entries `agentmem-any-0` and up."""
    text: Schema = {"type": "string", "maxLength": bounds.string}
    number: Schema = {"type": "number"}
    _number(number, bounds)
    scalars = [text, number, {"type": "boolean"}, {"type": "null"}]
    table: dict[str, Schema] = {f"{OPEN}0": {"anyOf": scalars}}
    for depth in range(1, bounds.depth + 1):
        inner = {"$ref": f"#/$defs/{OPEN}{depth - 1}"}
        array = {"type": "array", "items": inner, "maxItems": bounds.items}
        table[f"{OPEN}{depth}"] = {"anyOf": [*scalars, array, _free_object(inner, bounds)]}
    return table


def _free_object(values: Schema, bounds: Bounds) -> Schema:
    # Key lengths can be bounded only through a pattern.
    keys = f"^[^\\x00-\\x1f]{{1,{bounds.key}}}$"
    return {
        "type": "object",
        "patternProperties": {keys: values},
        "additionalProperties": False,
        "maxProperties": bounds.properties,
    }


def _number(schema: Schema, bounds: Bounds, whole: bool = False) -> None:
    low = [schema[k] for k in ("minimum", "exclusiveMinimum") if k in schema]
    high = [schema[k] for k in ("maximum", "exclusiveMaximum") if k in schema]
    if not low:
        schema["minimum"] = min(-bounds.number, *(2 * h for h in high), 0)
    if not high:
        schema["maximum"] = max(bounds.number, *(2 * v for v in low), 0)
    if not whole:
        # Also rules exponents out; the number of digits is what matters.
        schema.setdefault("multipleOf", bounds.fraction)


class _Closer:
    """Walks a schema; `close` gives the bounded copy of one node."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds

    def close(self, node: Any, merged: bool = False) -> Schema:
        """`merged`: the node is one of several in an `allOf`, so it must stay open to siblings."""
        if not isinstance(node, dict):
            return self._any() if node is not False else {"not": {}}
        schema = {k: v for k, v in node.items() if k != "x-guidance"}
        if set(schema) <= {"title", "description", "default", "examples", "$schema"} and not merged:
            return self._any()
        self._recurse(schema)
        kinds = _kinds(schema)
        if "enum" in schema or "const" in schema or "$ref" in schema:
            return schema
        if "string" in kinds:
            self._string(schema)
        if "integer" in kinds or "number" in kinds:
            _number(schema, self._bounds, whole="number" not in kinds)
        if "array" in kinds:
            self._array(schema)
        if "object" in kinds and not merged:
            self._object(schema)
        return schema

    def _any(self) -> Schema:
        return {"$ref": f"#/$defs/{OPEN}{self._bounds.depth}"}

    def _recurse(self, schema: Schema) -> None:
        for key in ("properties", "patternProperties", *TABLES):
            if isinstance(schema.get(key), dict):
                schema[key] = {name: self.close(sub) for name, sub in schema[key].items()}
        for key in (*BRANCHES, "prefixItems"):
            if isinstance(schema.get(key), list):
                schema[key] = [self.close(sub) for sub in schema[key]]
        if isinstance(schema.get("allOf"), list):
            several = len(schema["allOf"]) > 1 or bool(OBJECT_KEYS & schema.keys())
            schema["allOf"] = [self.close(sub, merged=several) for sub in schema["allOf"]]
        if isinstance(schema.get("items"), dict):
            schema["items"] = self.close(schema["items"])

    def _string(self, schema: Schema) -> None:
        if "format" in schema and schema["format"] not in FORMATS:
            del schema["format"]
        longest = max(self._bounds.string, schema.get("minLength", 0))
        schema.setdefault("maxLength", longest)

    def _array(self, schema: Schema) -> None:
        prefix = len(schema.get("prefixItems", ()))
        longest = max(self._bounds.items, schema.get("minItems", 0), prefix)
        schema.setdefault("maxItems", longest)
        if not isinstance(schema.get("items"), dict | bool):
            schema["items"] = self._any()

    def _object(self, schema: Schema) -> None:
        extra = schema.get("additionalProperties")
        named = schema.get("properties") or {}
        # An empty table of properties is a statement, too: a function without arguments.
        if (
            "properties" not in schema
            and not schema.get("patternProperties")
            and extra is not False
        ):
            values = self.close(extra) if isinstance(extra, dict) else self._any()
            if not schema.get("required"):
                limit = schema.get("maxProperties", self._bounds.properties)
                schema.update(_free_object(values, self._bounds), maxProperties=limit)
                return
        missing = [name for name in schema.get("required", ()) if name not in named]
        schema["properties"] = {**named, **{name: self._any() for name in missing}}
        # Leaving out what is optional is always valid, and ends.
        schema["additionalProperties"] = False


def _kinds(schema: Schema) -> set[str]:
    stated = schema.get("type")
    if isinstance(stated, list):
        return {kind for kind in stated if isinstance(kind, str)}
    if isinstance(stated, str):
        return {stated}
    found = {"object"} if OBJECT_KEYS & schema.keys() else set()
    return found | ({"array"} if ARRAY_KEYS & schema.keys() else set())
